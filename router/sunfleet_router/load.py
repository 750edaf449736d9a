"""What this replica has under way: requests per task, prompt tokens and legs per pod, and which pods fail.

Counters are context managers: whatever ends a request, they go back.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from sunfleet_router.policies import NOBODY
from sunfleet_router.policies.outlier import Outliers
from sunfleet_router.snapshot import Endpoint, Task


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

    @contextmanager
    def request(self, task: Task) -> Iterator[None]:
        """Count one request of a task."""
        with _counted(self.requests, task.name, 1):
            yield

    @contextmanager
    def prefill(self, endpoint: Endpoint, tokens: int, task: str) -> Iterator[None]:
        """Count one prompt on a pod while it is being prefilled, or waits there for its turn."""
        leg, legs = object(), self._prefills.setdefault(task, {})
        legs[leg] = self._clock()
        try:
            with _counted(self.prefill_tokens, endpoint.uid, tokens), _counted(self.prefill_backlog, task, tokens):
                yield
        finally:
            del legs[leg]
            if not legs:
                self._prefills.pop(task, None)

    def oldest_prefill(self, task: str) -> float:
        """Seconds for which the oldest prefill leg of a task has been under way; 0 when there is none."""
        return max(0.0, self._clock() - next(iter(self._prefills.get(task, {}).values()), self._clock()))

    @contextmanager
    def decode(self, endpoint: Endpoint) -> Iterator[None]:
        """Count one decode leg on a pod."""
        with _counted(self.decodes, endpoint.uid, 1):
            yield

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
        if self.outliers:
            self.outliers.began(uid, self._clock())

    def chosen(self, uid: str) -> None:
        """Note that a leg goes to a pod."""
        if self.outliers:
            self.outliers.chosen(uid, self._clock())

    def succeeded(self, uid: str) -> None:
        """Note that a pod did what a leg asked for."""
        if self.outliers:
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
        return self.outliers.ejected(self._clock()) if self.outliers else NOBODY


@contextmanager
def _counted(counter: Counter[str], key: str, amount: int) -> Iterator[None]:
    counter[key] += amount
    try:
        yield
    finally:
        counter[key] -= amount
        if not counter[key]:
            del counter[key]
