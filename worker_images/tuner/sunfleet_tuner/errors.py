"""Errors that a person can mend."""

from __future__ import annotations


class TuningError(Exception):
    """Says what went wrong, where, and how to mend it; shown without a traceback."""
