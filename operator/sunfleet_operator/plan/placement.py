"""Which pod of a PrefillPool holds which adapter. Pure.

What is loaded stays where it is as long as there is room: moving an adapter costs a load, and routers have just learnt
where it is. Every adapter gets its first copy before any gets a second; what room is left goes to the busiest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Seat:
    """A pod, and the adapters that it holds or was told to hold."""

    pod: str
    held: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Placed:
    """Adapters by pod, and those for which there is no room."""

    by_pod: Mapping[str, frozenset[str]]
    left_out: tuple[str, ...] = ()


def place(loads: Mapping[str, float | None], seats: Sequence[Seat], *, capacity: int, copies: int) -> Placed:
    """``loads``: adapters, oldest first, and how busy each is (in any unit), ``None`` where that is not known.

    ``capacity`` is of one pod. An adapter that is known to be idle gets ``copies`` and no more.
    """
    wanted = _copies(loads, len(seats), capacity, copies)
    table = _Table(loads, seats, wanted, capacity)
    table.thin_out()
    for name in sorted(wanted, key=lambda name: (-(loads[name] or 0.0), name)):
        table.fill(name)
    left_out = tuple(name for name in loads if not wanted[name]) if seats else ()
    return Placed({pod: frozenset(held) for pod, held in table.held.items()}, left_out)


def _copies(loads: Mapping[str, float | None], pods: int, capacity: int, copies: int) -> dict[str, int]:
    """How many pods shall hold each."""
    room, wanted = pods * capacity, dict.fromkeys(loads, 0)
    for _ in range(min(copies, pods)):
        for name in loads:
            if room:
                wanted[name] += 1
                room -= 1
    busy = [name for name, load in loads.items() if wanted[name] and load != 0]
    while room and (more := [name for name in busy if wanted[name] < pods]):
        # Where nothing is known all are alike.
        name = max(more, key=lambda name: ((1.0 if loads[name] is None else loads[name] or 0.0) / wanted[name], name))
        wanted[name] += 1
        room -= 1
    return wanted


class _Table:
    """Seats while they are filled."""

    def __init__(
        self, loads: Mapping[str, float | None], seats: Sequence[Seat], wanted: Mapping[str, int], capacity: int
    ) -> None:
        self._loads, self._wanted, self._capacity = loads, wanted, capacity
        self.held = {seat.pod: {name for name in seat.held if wanted.get(name)} for seat in seats}

    def fill(self, name: str) -> None:
        """Up to the wanted number, on the pods with the least work."""
        while self._have(name) < self._wanted[name]:
            open_seats = [pod for pod in self.held if name not in self.held[pod]]
            free = [pod for pod in open_seats if len(self.held[pod]) < self._capacity]
            pod = min(free or open_seats, key=lambda pod: (self._work(pod), len(self.held[pod]), pod))
            if not free and not self._evict(open_seats):
                return
            if not free:
                continue
            self.held[pod].add(name)

    def thin_out(self) -> None:
        """Pods that hold too much (the limit was lowered) let copies go that others have, then any."""
        for held in self.held.values():
            while len(held) > self._capacity:
                held.remove(max(held, key=lambda name: (self._have(name) - self._wanted[name], name)))

    def _evict(self, pods: Sequence[str]) -> bool:
        """Make room on one of these pods by a copy that is beyond what is wanted; whether there was any."""
        surplus = [
            (self._have(name) - self._wanted[name], pod, name)
            for pod in pods
            for name in self.held[pod]
            if self._have(name) > self._wanted[name]
        ]
        if not surplus:
            return False
        _, pod, name = max(surplus)
        self.held[pod].remove(name)
        return True

    def _have(self, name: str) -> int:
        return sum(name in held for held in self.held.values())

    def _work(self, pod: str) -> float:
        """Of its adapters, each copy taking an equal part."""
        return sum((self._loads[name] or 0.0) / max(1, self._wanted[name]) for name in self.held[pod])
