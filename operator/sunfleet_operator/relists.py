"""Tells one listing of a watch from the next: kopf hands over its objects one by one, and says neither where it begins
nor where it ends. Pure bookkeeping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

# A watch that failed is opened again after kopf's ``reconnect_backoff`` (1 s) at the earliest; objects of one listing
# follow each other much faster. A pause within one makes it two, which costs some reads and nothing else.
APART: Final = 0.5  # seconds


class Relists:
    """``scoped``: each namespace has watches of its own, as with an operator that serves only some."""

    def __init__(self, clock: Callable[[], float], *, scoped: bool) -> None:
        self._clock, self._scoped = clock, scoped
        self._last: dict[tuple[str, str], float] = {}

    def scope(self, namespace: str) -> str:
        """The namespace of the watch that tells of objects in this one; empty: of all."""
        return namespace if self._scoped else ""

    def begins(self, kind: str, namespace: str) -> bool:
        """A listed object was told; whether it is the first of a listing."""
        watch, now = (kind, self.scope(namespace)), self._clock()
        before, self._last[watch] = self._last.get(watch), now
        return before is None or now - before > APART
