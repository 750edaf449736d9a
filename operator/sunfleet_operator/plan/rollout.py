"""How many pods each revision gets while one replaces another: the rolling update of a Deployment, across
Deployments. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sunfleet_api.scaling import IntOrPercent, Rollout


@dataclass(frozen=True)
class Side:
    """One revision's pods: wanted by its Deployment, there (also terminating ones), and usable.

    ``usable`` are those that can serve now: Available, and for prefill pods with a decode pod that reads their KV.
    """

    revision: str
    replicas: int
    present: int = 0
    usable: int = 0


@dataclass(frozen=True)
class Limits:
    """Pods above and below the wanted count, resolved from numbers or percentages."""

    surge: int
    unavailable: int

    @classmethod
    def of(cls, rollout: Rollout, want: int) -> Limits:
        """Surge rounds up and unavailable down, as in a Deployment; both zero would never move, so one may be
        missing."""
        surge = _resolve(rollout.max_surge, want, round_up=True)
        unavailable = _resolve(rollout.max_unavailable, want, round_up=False)
        return cls(surge, unavailable if surge or unavailable else 1)

    def within(self, room: int | None) -> Limits:
        """Under a budget that has ``room`` for pods above the count; ``None``: not settled yet, so nothing moves."""
        if room is None:
            return Limits(0, 0)
        surge = min(self.surge, room)
        return Limits(surge, self.unavailable if surge or self.unavailable else 1)


def _resolve(value: IntOrPercent, want: int, *, round_up: bool) -> int:
    if isinstance(value, int):
        return value
    exact = want * int(value.rstrip("%")) / 100
    return math.ceil(exact) if round_up else math.floor(exact)


def step(want: int, limits: Limits, target: Side, others: Sequence[Side], *, keep: int = 0) -> Mapping[str, int]:
    """Replica count per revision for now; called again after every change until only ``target`` is left.

    ``others`` are in the order in which they should go. ``keep`` of their pods stay whatever happens: tasks still
    read their KV format.
    """
    grown = _grown(want, limits, target, others)
    if want == 0 or not any(side.replicas for side in others):
        return {side.revision: 0 for side in others} | {target.revision: grown}
    return _shrink(want, limits, target, others, keep) | {target.revision: grown}


def _grown(want: int, limits: Limits, target: Side, others: Sequence[Side]) -> int:
    """As many as fit. Without surge, pods that still terminate take their place up: there is no spare GPU."""
    taken = sum(side.replicas if limits.surge else max(side.replicas, side.present) for side in others)
    return min(want, max(target.replicas, want + limits.surge - taken))


def _shrink(want: int, limits: Limits, target: Side, others: Sequence[Side], keep: int) -> dict[str, int]:
    """Unusable pods of old revisions first, then usable ones; the wanted count less ``unavailable`` is never undercut.

    A pod of the target that does not serve yet counts as missing, so a new revision that never starts takes nothing
    away.
    """
    left = {side.revision: side.replicas for side in others}
    spare = max(0, sum(left.values()) - keep)
    least = max(0, want - limits.unavailable)
    removable = max(0, target.replicas + sum(left.values()) - least - (target.replicas - target.usable))
    for side in others:
        dead = min(spare, removable, max(0, side.replicas - side.usable))
        left[side.revision] -= dead
        spare, removable = spare - dead, removable - dead
    usable = target.usable + sum(min(side.usable, left[side.revision]) for side in others)
    droppable = min(spare, max(0, usable - least))
    for side in others:
        dropped = min(droppable, left[side.revision])
        left[side.revision] -= dropped
        droppable -= dropped
    return left


def finished(want: int, target: Side, others: Sequence[Side]) -> bool:
    """Everything that is wanted runs in the target revision, and nothing is left of the others."""
    return target.replicas == want and target.usable >= want and not any(side.replicas for side in others)
