"""Those who wait for one decoder, and who of them is next. Pure but for the futures that it carries.

Streams that broke off come first, in the order in which they came. Then the classes of ``priority``, the lowest number
first, and within a class the tasks by their fair share; the requests of one task and class keep their order.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from sunfleet_router.admission.claim import Claim
from sunfleet_router.fleet.snapshot import Endpoint
from sunfleet_router.policies.fair import FairShare


@dataclass(slots=True, eq=False)
class Waiter:
    """One in a line. ``placed`` is done when it has a pod, or an error, or has given up."""

    claim: Claim
    placed: asyncio.Future[Endpoint]
    in_line: bool = False


class Line:
    """``share`` holds the tasks' counters, and outlives the line."""

    def __init__(self, share: FairShare) -> None:
        self._share = share
        self._classes: dict[int, dict[str, deque[Waiter]]] = {}
        self._tasks: Counter[str] = Counter()  # new ones only
        self.resumed: deque[Waiter] = deque()
        self.timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return bool(self.resumed or self._tasks)

    def join(self, waiter: Waiter) -> None:
        waiter.in_line = True
        claim, name = waiter.claim, waiter.claim.task.name
        if claim.resumed:
            self.resumed.append(waiter)
            return
        if name not in self._tasks:
            self._share.join(name, self._tasks)
        self._tasks[name] += 1
        self._classes.setdefault(claim.priority, {}).setdefault(name, deque()).append(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Take it out, wherever it stands; without effect when it stands no more."""
        if not waiter.in_line:
            return
        waiter.in_line = False
        claim, name = waiter.claim, waiter.claim.task.name
        if claim.resumed:
            self.resumed.remove(waiter)
            return
        tasks = self._classes[claim.priority]
        tasks[name].remove(waiter)  # those who are served stand at its left end
        if not tasks[name]:
            del tasks[name]
        if not tasks:
            del self._classes[claim.priority]
        self._tasks[name] -= 1
        if not self._tasks[name]:
            del self._tasks[name]
        if not self._tasks:
            self._share.rest(name)

    def next(self, held: AbstractSet[str]) -> Waiter | None:
        """The next new one, but none whose KV only pods of a format in ``held`` could take."""
        for priority in sorted(self._classes):
            heads = [queue[0] for queue in self._classes[priority].values()]
            if held:
                heads = [head for head in heads if held.isdisjoint(head.claim.facts.fingerprints)]
            if heads:
                return min(heads, key=lambda head: self._share.level(head.claim.task.name))
        return None
