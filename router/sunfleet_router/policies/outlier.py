"""Pods that keep failing are let be for a while, then tried with one request at a time. Pure: the caller has the clock.

A pod with several failures in a row is ejected: it becomes everyone's last resort, so that a fleet in which all fail
still serves what it can. When its time is over one request may try it. A success closes the matter, a failure ejects it
again for twice as long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FAILURES: Final = 5  # in a row
FIRST: Final = 10.0  # seconds
LONGEST: Final = 300.0
TRIAL: Final = 10.0  # seconds after which a trial that nobody heard of again makes room for another


@dataclass(slots=True)
class _Record:
    in_a_row: int = 0
    ejections: int = 0
    until: float = 0.0  # ejected, or on trial


class Outliers:
    """What is held against pods, by uid. Those without a failure since their last success take no memory."""

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}

    def failed(self, uid: str, now: float) -> None:
        record = self._records.setdefault(uid, _Record())
        record.in_a_row += 1
        if record.in_a_row >= FAILURES:
            record.until = now + min(FIRST * 2.0**record.ejections, LONGEST)
            record.ejections += 1

    def succeeded(self, uid: str) -> None:
        self._records.pop(uid, None)

    def chosen(self, uid: str, now: float) -> None:
        """A request goes there: if the pod was ejected, and its time is over, as the one that tries it."""
        record = self._records.get(uid)
        if record is not None and record.ejections and now >= record.until:
            record.until = now + TRIAL

    def ejected(self, now: float) -> frozenset[str]:
        """Who gets nothing at the moment that another pod could take."""
        return frozenset(uid for uid, record in self._records.items() if now < record.until)

    def keep(self, uids: frozenset[str]) -> None:
        """Forget pods that are gone."""
        self._records = {uid: record for uid, record in self._records.items() if uid in uids}

    def __bool__(self) -> bool:
        return bool(self._records)
