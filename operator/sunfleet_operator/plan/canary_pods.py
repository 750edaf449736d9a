"""The pods that a canary has of its own, beside those of the task's other revisions. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sunfleet_api.scaling import Rollout
from sunfleet_operator.observed import ObservedModel
from sunfleet_operator.plan import revisions, steps
from sunfleet_operator.plan.actions import Write
from sunfleet_operator.plan.canary import Entrant
from sunfleet_operator.plan.replicas import Wanted
from sunfleet_operator.plan.revisions import Fleet
from sunfleet_operator.plan.steps import State
from sunfleet_operator.records import ModelRevision
from sunfleet_operator.types import spec_of


@dataclass(frozen=True)
class OwnPods:
    """:class:`~sunfleet_operator.plan.canary.Place`. ``want``: pods of the task; ``room``: those that the budget leaves
    for a canary, ``None`` without a budget."""

    entrant: Entrant
    fleet: Fleet
    rollout: Rollout
    want: Wanted
    room: int | None

    @classmethod
    def of(
        cls,
        observed: ObservedModel,
        rollout: Rollout,
        want: Wanted,
        room: int | None,
        entrant: Entrant,
        target: ModelRevision,
    ) -> OwnPods:
        fleet = Fleet(observed.live, observed.key, observed.children, target, "", {})
        return cls(entrant, fleet, rollout, want, room)

    def refused(self) -> str:
        """Kubernetes keeps the time."""
        live = self.fleet.deployment(self.fleet.target.revision)
        if live is not None and revisions.deadline_passed(live):
            return "its pods made no progress within rollout.progressDeadlineSeconds"
        return ""

    def waits(self) -> str:
        """A pod of each side, at least."""
        live = self.fleet.deployment(self.fleet.target.revision)
        if self.want.count == 0:
            return "no replicas are wanted"
        if live is None or not revisions.available(live):
            return "waits for a prefill pod of its own"
        if self.fleet.target.kv_fingerprint.label not in revisions.formats(self.entrant.shadow.decoder_deployments):
            return "waits for a decode pod that reads its KV"
        return ""

    def due(self) -> float | None:
        """The Deployment's condition is an event."""
        return None

    def writes(self, state: State, /) -> Sequence[Write]:
        """As many as its share needs; those of the others stay, so that going back takes no time."""
        taken = steps.ordered(self.entrant.spec.steps)
        share = taken[min(state.step, len(taken) - 1)].weight if taken else 0
        count = min(self.want.count, max(1, math.ceil(self.want.count * share / 100)))
        if self.room is not None:
            live = self.fleet.deployment(self.fleet.target.revision)
            present = 0 if live is None else int(spec_of(live).get("replicas", 1))
            count = min(count, max(present, self.room))
        return revisions.stand(self.fleet, count, self.rollout)
