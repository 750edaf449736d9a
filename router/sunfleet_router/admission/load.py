"""What this replica has under way: requests per task, prompt tokens and legs per pod, and which pods fail.

Whoever counts something in counts it out again, in a context: whatever ends a request, the counters go back.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping

from sunfleet_router.fleet.snapshot import Task
from sunfleet_router.policies import NOBODY
from sunfleet_router.policies.outlier import Outliers


class Load:
    """One per process; ``suspect_seconds`` is how long an unreachable pod stays a last resort."""

    def __init__(self, suspect_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._suspect_seconds = suspect_seconds
        self._clock = clock
        self.suspected: dict[str, float] = {}  # uid -> until; see :meth:`suspects`
        self.requests: Counter[str] = Counter()  # task -> requests
        self.prefill_tokens: Counter[str] = Counter()  # pod uid -> prompt tokens
        self.prefill_backlog: Counter[str] = Counter()  # task -> prompt tokens
        self.decodes: Counter[str] = Counter()  # pod uid -> decode legs under way
        self.outliers = Outliers()
        self.failing = self.outliers.any  # its truth: whether anything is held against any pod; asked for first
        self._prefills: dict[str, dict[object, float]] = {}  # task -> leg -> since when, oldest first

    def request_begins(self, task: Task) -> None:
        """Count one request of a task in."""
        _add(self.requests, task.name, 1)

    def request_ends(self, task: Task) -> None:
        """And out."""
        _add(self.requests, task.name, -1)

    def prefill_begins(self, leg: object, uid: str, tokens: int, task: str) -> None:
        """One prompt of a task is on a pod from now on, being prefilled or waiting there for its turn; ``leg`` tells it
        from the others.
        """
        self.prefill_tokens[uid] += tokens
        self.prefill_backlog[task] += tokens
        legs = self._prefills.get(task)
        if legs is None:
            legs = self._prefills[task] = {}
        legs[leg] = self._clock()

    def prefill_ends(self, leg: object, uid: str, tokens: int, task: str) -> None:
        """And no more."""
        _add(self.prefill_tokens, uid, -tokens)
        _add(self.prefill_backlog, task, -tokens)
        legs = self._prefills[task]
        del legs[leg]
        if not legs:
            del self._prefills[task]

    def decode_begins(self, uid: str) -> None:
        """A decode leg is on a pod from now on."""
        self.decodes[uid] += 1

    def decode_ends(self, uid: str) -> None:
        """And no more."""
        _add(self.decodes, uid, -1)

    def oldest_prefill(self, task: str) -> float:
        """Seconds for which the oldest prefill leg of a task has been under way; 0 when there is none."""
        return max(0.0, self._clock() - next(iter(self._prefills.get(task, {}).values()), self._clock()))

    def suspect(self, uid: str) -> None:
        """Note that a pod could not be reached."""
        self.suspected[uid] = self._clock() + self._suspect_seconds

    def failed(self, uid: str) -> None:
        """Note that a leg failed on a pod, by the pod's fault."""
        self.outliers.failed(uid, self._clock())

    def keep(self, uids: frozenset[str]) -> None:
        """Forget pods that are gone."""
        self.outliers.keep(uids)

    def began(self, uid: str) -> None:
        """Note that a pod has begun to answer a leg."""
        if self.outliers.any:
            self.outliers.began(uid, self._clock())

    def chosen(self, uid: str) -> None:
        """Note that a leg goes to a pod."""
        if self.outliers.any:
            self.outliers.chosen(uid, self._clock())

    def on_trial(self, uid: str) -> bool:
        """See :meth:`Outliers.on_trial`."""
        return self.outliers.on_trial(uid)

    def succeeded(self, uid: str) -> None:
        """Note that a pod did what a leg asked for."""
        if self.outliers.any:
            self.outliers.succeeded(uid)

    def suspects(self) -> frozenset[str]:
        """Pods that get work only if no other can take it: those that did not answer a moment ago."""
        if not self.suspected:
            return frozenset()
        now = self._clock()
        for uid in [uid for uid, until in self.suspected.items() if until <= now]:
            del self.suspected[uid]
        return frozenset(self.suspected)

    def ejected(self) -> Mapping[str, float]:
        """Pods that get nothing, see :meth:`Outliers.ejected`."""
        return self.outliers.ejected(self._clock()) if self.outliers.any else NOBODY


def _add(counter: Counter[str], key: str, amount: int) -> None:
    """A key whose count is 0 is not there."""
    counter[key] += amount
    if not counter[key]:
        del counter[key]
