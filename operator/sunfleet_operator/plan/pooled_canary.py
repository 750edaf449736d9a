"""A second adapter of a task on the pods of its PrefillPool, with requests of its own. Pure.

The pods hold it beside the serving one, under a name of its own; routers divide the requests. No pod starts for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sunfleet_api.sun_model import SunModel
from sunfleet_operator.observed import Defaults, ObservedModel
from sunfleet_operator.plan import canary, pooled_candidate, pooled_check, revisions
from sunfleet_operator.plan.actions import Write
from sunfleet_operator.plan.canary import Entrant
from sunfleet_operator.plan.candidate import Candidate
from sunfleet_operator.plan.pooled_candidate import Pool
from sunfleet_operator.plan.revisions import Fleet
from sunfleet_operator.plan.steps import State
from sunfleet_operator.plan.verify import Check
from sunfleet_operator.records import ModelRevision


@dataclass(frozen=True)
class InPool:
    """:class:`~sunfleet_operator.plan.canary.Place`. ``usable``: pods per revision that have it and whose KV some
    decode pod reads."""

    observed: ObservedModel
    pool: Pool
    deadline_seconds: int
    usable: Mapping[str, int]
    now: datetime
    entrant: Entrant
    target: ModelRevision

    def refused(self) -> str:
        """What pods cannot load they say, and go on trying: it may mend itself, but not for ever. While it is only not
        there yet nobody is to blame: the pool may have been asleep."""
        left = self.due()
        if left is None or left > 0:
            return ""
        return f"no pod of the pool could load it within rollout.progressDeadlineSeconds: {self._fault()}"

    def due(self) -> float | None:
        """Until the deadline, while pods say that they cannot load it."""
        told = self.entrant.told
        phase = told.phase if told else "Verifying"
        if phase != "Verifying" or not self._fault() or self.usable.get(self.target.revision):
            return None
        return self.deadline_seconds - (self.now - (told.began if told else self.now)).total_seconds()

    def waits(self) -> str:
        """A pod of the pool, and a decode pod that reads its KV."""
        if self.pool.asleep:
            return "the pool has no pods; a request brings them up"
        if self.usable.get(self.target.revision):
            return ""
        fault = self._fault()
        return f"no pod of the pool has loaded it: {fault}" if fault else "waits for a pod of the pool to load it"

    def writes(self, _: State, /) -> Sequence[Write]:
        """Its record; that the pods shall hold it is in the task's status, at any step."""
        fleet = Fleet(self.observed.live, self.observed.key, self.observed.children, self.target, "", self.usable)
        return revisions.record_writes(fleet)

    def _fault(self) -> str:
        found = self.observed.pool_faults.get(pooled_check.adapter_of(self.observed.key, self.target))
        return f"{found.reason}: {found.message}" if found else ""


def shadow(model: SunModel) -> SunModel | None:
    """The task as it would be with its canary promoted; ``None`` without one that acts."""
    return canary.shadow_of(model) if model.spec.canary and model.spec.canary.acts_in(model.spec.prefill) else None


def asks(observed: ObservedModel, model: SunModel, pool: Pool, defaults: Defaults) -> tuple[str, str]:
    """Ids of the questions about the adapters of the task and of its canary."""
    own = pooled_candidate.question(observed, model, pool, defaults).id(observed.key)
    tried = shadow(model)
    return own, pooled_candidate.question(observed, tried, pool, defaults).id(observed.key) if tried else own


def enter(
    observed: ObservedModel,
    model: SunModel,
    base: Candidate,
    defaults: Defaults,
    known: Sequence[ModelRevision],
    current: str,
    now: datetime,
) -> Entrant | None:
    """The candidate of ``spec.canary``; ``None`` where there is none, or the task is not to be served at all."""
    tried, asked = shadow(model), model.spec.canary
    if tried is None or asked is None or base.standing.refused:
        return None
    pool = pooled_candidate.pool_for(observed, tried)
    own, theirs = asks(observed, model, pool, defaults)
    leave: Collection[str] = () if own == theirs else (own,)
    made = pooled_candidate.candidate(observed, tried, pool, defaults, known, now, moving=False, leave=leave)
    bare = Entrant(asked, observed, made, Check(cleared=False), questions=own != theirs)

    def check() -> Check:
        return pooled_candidate.checked(observed, tried, pool, made, defaults, serving=False, now=now)

    return canary.weigh(bare, observed, base.target, known, current, check, now)
