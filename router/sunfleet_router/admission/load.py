"""What this replica has under way: requests per task, prompt tokens and legs per pod, and which pods fail.

Counters are context managers: whatever ends a request, they go back. They are classes, for every request enters several
of them.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping

from sunfleet_router.fleet.snapshot import Endpoint, Task
from sunfleet_router.policies import NOBODY
from sunfleet_router.policies.outlier import Outliers


class Load:
    """One per process; ``suspect_seconds`` is how long an unreachable pod stays a last resort."""

    def __init__(self, suspect_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._suspect_seconds = suspect_seconds
        self._clock = clock
        self._suspects: dict[str, float] = {}  # uid -> until
        self.requests: Counter[str] = Counter()  # task -> requests
        self.prefill_tokens: Counter[str] = Counter()  # pod uid -> prompt tokens
        self.prefill_backlog: Counter[str] = Counter()  # task -> prompt tokens
        self.decodes: Counter[str] = Counter()  # pod uid -> decode legs under way
        self.outliers = Outliers()
        self._prefills: dict[str, dict[object, float]] = {}  # task -> leg -> since when, oldest first

    def request_begins(self, task: Task) -> None:
        """Count one request of a task in."""
        _add(self.requests, task.name, 1)

    def request_ends(self, task: Task) -> None:
        """And out."""
        _add(self.requests, task.name, -1)

    def prefill(self, endpoint: Endpoint, tokens: int, task: str) -> CountedPrefill:
        """Count one prompt on a pod while it is being prefilled, or waits there for its turn."""
        return CountedPrefill(self, endpoint.uid, tokens, task)

    def prefill_begins(self, leg: object, uid: str, tokens: int, task: str) -> None:
        """A prefill leg of a task is under way from now on."""
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

    def oldest_prefill(self, task: str) -> float:
        """Seconds for which the oldest prefill leg of a task has been under way; 0 when there is none."""
        return max(0.0, self._clock() - next(iter(self._prefills.get(task, {}).values()), self._clock()))

    def decode(self, endpoint: Endpoint) -> Counted:
        """Count one decode leg on a pod."""
        return Counted(self.decodes, endpoint.uid, 1)

    def suspect(self, uid: str) -> None:
        """Note that a pod could not be reached."""
        self._suspects[uid] = self._clock() + self._suspect_seconds

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
        if not self._suspects:
            return frozenset()
        now = self._clock()
        self._suspects = {uid: until for uid, until in self._suspects.items() if until > now}
        return frozenset(self._suspects)

    def ejected(self) -> Mapping[str, float]:
        """Pods that get nothing, see :meth:`Outliers.ejected`."""
        return self.outliers.ejected(self._clock()) if self.outliers.any else NOBODY


class Counting(ABC):
    """A context in which something is counted."""

    __slots__ = ()

    @abstractmethod
    def enter(self) -> None: ...

    @abstractmethod
    def leave(self) -> None: ...

    def __enter__(self) -> None:
        self.enter()

    def __exit__(self, *_: object) -> None:
        self.leave()


class Counted(Counting):
    """``counter`` has ``amount`` more of ``key``."""

    __slots__ = ("_amount", "_counter", "_key")

    def __init__(self, counter: Counter[str], key: str, amount: int) -> None:
        self._counter = counter
        self._key = key
        self._amount = amount

    def enter(self) -> None:
        self._counter[self._key] += self._amount

    def leave(self) -> None:
        _add(self._counter, self._key, -self._amount)


class CountedPrefill(Counting):
    """One prompt is on a pod."""

    __slots__ = ("_load", "_task", "_tokens", "_uid")

    def __init__(self, load: Load, uid: str, tokens: int, task: str) -> None:
        self._load = load
        self._uid = uid
        self._tokens = tokens
        self._task = task

    def enter(self) -> None:
        self._load.prefill_begins(self, self._uid, self._tokens, self._task)

    def leave(self) -> None:
        self._load.prefill_ends(self, self._uid, self._tokens, self._task)


def _add(counter: Counter[str], key: str, amount: int) -> None:
    """A key whose count is 0 is not there."""
    counter[key] += amount
    if not counter[key]:
        del counter[key]
