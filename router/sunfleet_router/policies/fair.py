"""Fair share of a decoder between tasks: virtual token counters (Sheng et al., OSDI 2024), divided by weight.

A task is charged for the KV tokens that it is given, and of those who wait the one with the least charge per weight is
served next. So what a short pool gives to each task follows the weights however many requests each of them has waiting,
and whatever a task leaves is used by the others. A task that had nobody waiting comes back level with those who have:
time spent idle is no credit, and nothing that was used while nobody else waited is held against it.
"""

from __future__ import annotations

from collections.abc import Iterable


class FairShare:
    """The counters of one decoder, in tokens per unit of weight."""

    def __init__(self) -> None:
        self._charged: dict[str, float] = {}
        self._floor = 0.0  # level of a task that was served when nobody waited, or nobody was left waiting

    def level(self, task: str) -> float:
        """What the task has had; the least is served next."""
        return self._charged.get(task, self._floor)

    def join(self, task: str, waiting: Iterable[str]) -> None:
        """``task`` has a request to wait and had none; ``waiting`` are the others that have."""
        lowest = min(map(self.level, waiting), default=self._floor)
        self._charged[task] = max(self.level(task), lowest)

    def charge(self, task: str, tokens: float, weight: int) -> None:
        """Count ``tokens`` for ``task``; a negative number gives back what was reserved and not used."""
        charged = self._charged
        charged[task] = charged.get(task, self._floor) + tokens / weight

    def passed(self, task: str) -> None:
        """``task`` is served at once, since nobody waits: whoever comes to wait starts level with it."""
        level = self._charged.get(task)
        if level is not None and level > self._floor:
            self._floor = level

    def rest(self, served: str) -> None:
        """Nobody waits any more, ``served`` was the last who did. Those at its level or below need no memory."""
        self._floor = max(self._floor, self.level(served))
        self._charged = {task: level for task, level in self._charged.items() if level > self._floor}

    def keep(self, tasks: Iterable[str]) -> None:
        """Forget every task that no longer exists."""
        self._charged = {task: self._charged[task] for task in tasks if task in self._charged}
