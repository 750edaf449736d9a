"""One budget for the decode pool and all tasks on it: who gets how many pods, and never one too many. Pure.

Two questions. *Fair*: how should the whole budget be divided among the wishes? One pod after the other goes to whoever
has least for its weight of the resource that it uses most (dominant resource fairness), floors first. *Now*: who is
above that shrinks; who is below grows only into what is really free, and pods that still terminate free nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sunfleet_operator.autoscale.state import Pods

Amounts = Mapping[str, int]


@dataclass(frozen=True)
class Party:
    """One object's part. ``keeps``: its present pods are not taken away (no metrics, or a person fixed the count)."""

    key: str
    pods: Pods
    wish: int
    floor: int = 0
    weight: float = 1.0
    keeps: bool = False

    @property
    def committed(self) -> int:
        """Pods that hold their resources now, or will as soon as a controller acts."""
        return max(self.pods.wanted, self.pods.live) + self.pods.terminating


def fair(parties: Sequence[Party], limits: Amounts) -> dict[str, int]:
    """Counts that the budget allows in the long run."""
    counts = {party.key: min(party.pods.wanted, party.wish) if party.keeps else 0 for party in parties}
    left = _left(limits, parties, lambda party: counts[party.key])
    _fill(parties, counts, left, limits, lambda party: min(party.floor, party.wish))
    _fill(parties, counts, left, limits, lambda party: party.wish)
    return counts


def now(parties: Sequence[Party], limits: Amounts) -> dict[str, int]:
    """Counts to go to now: down to the fair share at once, up to it as far as there is room."""
    shares = fair(parties, limits)
    counts = {party.key: min(shares[party.key], party.pods.wanted) for party in parties}
    left = free(parties, limits)
    _fill(parties, counts, left, limits, lambda party: shares[party.key] if _may_grow(party, shares) else 0)
    return counts


def _may_grow(party: Party, shares: Mapping[str, int]) -> bool:
    return shares[party.key] > party.pods.wanted


def free(parties: Sequence[Party], limits: Amounts) -> dict[str, int]:
    """What nobody holds now; below 0 when the limit was lowered."""
    return _left(limits, parties, lambda party: party.committed)


def surges(parties: Sequence[Party], limits: Amounts, counts: Mapping[str, int]) -> dict[str, int]:
    """Pods above its count that each object's roll-out may have, those it has already included."""
    left = free(parties, limits)
    for party in parties:
        _take(left, party.pods.each, max(0, counts[party.key] - party.pods.wanted))
    rooms: dict[str, int] = {}
    for party in sorted(parties, key=lambda party: party.key):
        rooms[party.key] = max(0, party.pods.live - party.pods.wanted)
        while rooms[party.key] < party.pods.surge and _fits(party.pods.each, left):
            rooms[party.key] += 1
            _take(left, party.pods.each, 1)
    return rooms


def _left(limits: Amounts, parties: Sequence[Party], count: Callable[[Party], int]) -> dict[str, int]:
    left = dict(limits)
    for party in parties:
        _take(left, party.pods.each, count(party))
    return left


def _fill(
    parties: Sequence[Party],
    counts: dict[str, int],
    left: dict[str, int],
    limits: Amounts,
    target: Callable[[Party], int],
) -> None:
    """One pod at a time to whoever has least for its weight, for as long as it fits."""
    open_ = [party for party in parties if counts[party.key] < target(party)]
    while open_:
        party = min(open_, key=lambda party: (_dominant(party, counts[party.key], limits) / party.weight, party.key))
        if not _fits(party.pods.each, left):
            open_.remove(party)
            continue
        counts[party.key] += 1
        _take(left, party.pods.each, 1)
        if counts[party.key] >= target(party):
            open_.remove(party)


def _dominant(party: Party, count: int, limits: Amounts) -> float:
    """Share of the resource that it uses most."""
    return max((count * party.pods.each.get(name, 0) / limit for name, limit in limits.items() if limit), default=0.0)


def _fits(each: Amounts, left: Amounts) -> bool:
    return all(each.get(name, 0) <= amount or not each.get(name) for name, amount in left.items())


def _take(left: dict[str, int], each: Amounts, pods: int) -> None:
    for name in left:
        left[name] -= each.get(name, 0) * pods
