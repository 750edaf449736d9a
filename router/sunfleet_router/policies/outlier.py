"""Pods that keep failing are let be for a while, then tried with one request at a time. Pure: the caller has the clock.

A pod with several failures in a row is ejected: it gets nothing. When its time is over one request may try it. A
success closes the matter, a failure ejects it again for twice as long. Where every pod is ejected the circuit is open:
requests fail at once, and one of them tries a pod every few seconds, however long the pod's own time is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

FAILURES: Final = 5  # in a row
FIRST: Final = 10.0  # seconds
LONGEST: Final = 300.0
TRIAL: Final = 10.0  # seconds after which a trial that nobody heard of again makes room for another
PROBE: Final = 10.0  # seconds between two trials of an ejected pod where there is no other


@dataclass(slots=True)
class _Record:
    in_a_row: int = 0
    ejections: int = 0
    since: float = 0.0  # ejected, or on trial
    until: float = 0.0
    on_trial: bool = False


class Outliers:
    """What is held against pods, by uid. Those without a failure since their last success take no memory."""

    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}
        self.any: Mapping[str, object] = self._records  # its truth is theirs: looked at several times in every request

    def failed(self, uid: str, now: float) -> None:
        record = self._records.setdefault(uid, _Record())
        record.in_a_row += 1
        if record.in_a_row < FAILURES or (now < record.until and not record.on_trial):
            return  # few so far, or of legs that had begun before the pod was ejected
        record.since, record.until = now, now + min(FIRST * 2.0**record.ejections, LONGEST)
        record.ejections += 1
        record.on_trial = False

    def succeeded(self, uid: str) -> None:
        self._records.pop(uid, None)

    def began(self, uid: str, now: float) -> None:
        """A pod has begun to answer: others may follow, but the next failure ejects it again."""
        record = self._records.get(uid)
        if record is not None and record.ejections:
            record.until, record.on_trial = now, False

    def chosen(self, uid: str, now: float) -> None:
        """A request goes there: if the pod was ejected, as the one that tries it."""
        record = self._records.get(uid)
        if record is not None and record.ejections:
            record.since, record.until, record.on_trial = now, max(record.until, now + TRIAL), True

    def on_trial(self, uid: str) -> bool:
        """Whether a request tries it at present: that one must not be sent away because of itself."""
        record = self._records.get(uid)
        return record is not None and record.on_trial

    def ejected(self, now: float) -> Mapping[str, float]:
        """Who gets nothing at the moment -> seconds until one request may try it all the same, if there is no other."""
        return {
            uid: max(0.0, record.since + PROBE - now) for uid, record in self._records.items() if now < record.until
        }

    def keep(self, uids: frozenset[str]) -> None:
        """Forget pods that are gone."""
        for uid in self._records.keys() - uids:
            del self._records[uid]

    def __bool__(self) -> bool:
        return bool(self._records)
