"""What the scaler tells the reconcile of one object. Frozen, in memory only: the count in effect is in the status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sunfleet_operator.autoscale.decision import Decision
from sunfleet_operator.types import Key


@dataclass(frozen=True)
class Told:
    """``decision`` holds the count that fits the budget now, also for counts that people or others gave; only one that
    ``acts`` is the built-in scaler's own.

    ``room``: pods above it that a roll-out may have, ``None`` when it has to wait until that is settled. ``exceeded``:
    what the whole budget lacks. ``rival``: who else scales this object, in words. ``work``: requests of each engine pod
    by its name, where that is measured. ``loads``: of a PrefillPool, prompt tokens a second by SunModel, likewise.
    """

    decision: Decision
    acts: bool = True
    room: int | None = None
    exceeded: str = ""
    rival: str = ""
    work: Mapping[str, float] = field(default_factory=dict)
    loads: Mapping[Key, float] = field(default_factory=dict)

    def differs(self, other: Told | None) -> bool:
        """Whether the object has to be looked at again: figures that move all the time are no reason."""
        return other is None or _matters(self) != _matters(other)


def _matters(told: Told) -> object:
    decision = told.decision
    return told.acts, decision.replicas, decision.wished, decision.why, told.room, told.exceeded, told.rival
