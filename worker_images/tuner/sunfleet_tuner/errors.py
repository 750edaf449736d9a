"""Errors that a person can mend.

::

    TuningError            TuningFailed
     |-- InvalidSettings
     |-- InvalidData
     |-- InvalidCheckpoint
     |-- OutOfMemory
     |-- LossNotFinite
     +-- StoreFailed        a bucket refused, or could not be reached

The name of the class is the ``reason`` that a Job's status shows.
"""

from __future__ import annotations


class TuningError(Exception):
    """Says what went wrong, where, and how to mend it; shown without a traceback."""

    @property
    def reason(self) -> str:
        """One CamelCase word."""
        return "TuningFailed" if type(self) is TuningError else type(self).__name__


class InvalidSettings(TuningError): ...  # noqa: N818 - the class name is the status's reason


class InvalidData(TuningError): ...  # noqa: N818


class InvalidCheckpoint(TuningError): ...  # noqa: N818


class OutOfMemory(TuningError): ...  # noqa: N818


class LossNotFinite(TuningError): ...  # noqa: N818


class StoreFailed(TuningError): ...  # noqa: N818
