"""The replica count of one object for this reconcile, and what to say about it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sunfleet_api.conditions import ConditionType, Reason
from sunfleet_api.scaling import Autoscaling, ScalingStatus
from sunfleet_operator import counts
from sunfleet_operator.autoscale.decision import BLIND, Decision, Why
from sunfleet_operator.counts import Standing
from sunfleet_operator.plan.actions import Event
from sunfleet_operator.plan.conditions import Verdict, shorten
from sunfleet_operator.told import Told
from sunfleet_operator.types import Json, Manifest

# Without a word of the scaler, an object under a budget looks again so soon.
UNTOLD_SECONDS = 5
_LOUD = BLIND | {Why.BUDGET, Why.PAUSED}


@dataclass(frozen=True)
class Wanted:
    """``room``: see :class:`~sunfleet_operator.told.Told`; it counts only where ``budgeted``."""

    count: int
    budgeted: bool = False
    room: int | None = None
    verdicts: tuple[Verdict, ...] = ()
    status: Manifest | None = None  # status.scaling
    events: tuple[Event, ...] = ()
    requeue_after: float | None = None


@dataclass(frozen=True)
class Facts:
    """What the count depends on. ``budgeted``: the decoder has a ``gpuBudget``."""

    live: Json
    replicas: int  # spec.replicas
    auto: Autoscaling | None
    deployments: Sequence[Json]
    told: Told | None
    budgeted: bool


def wanted(facts: Facts, now: datetime) -> Wanted:
    standing = counts.standing(facts.live, facts.replicas, facts.auto, facts.deployments)
    count, told = _count(facts, standing), facts.told
    answered = told is not None and (standing.mode == "BuiltIn" or told.decision.wished == standing.asked)
    return Wanted(
        count=count,
        budgeted=facts.budgeted,
        room=told.room if told else None,
        verdicts=tuple(_verdicts(facts, standing)),
        status=_status(facts, standing, count, now),
        events=_events(standing, count, told),
        requeue_after=UNTOLD_SECONDS if facts.budgeted and not answered else None,
    )


def _count(facts: Facts, standing: Standing) -> int:
    told, auto = facts.told, facts.auto
    acting = auto is not None and standing.mode == "BuiltIn" and not auto.dry_run and standing.present is not None
    if acting and told is not None and told.acts:
        return told.decision.replicas
    if not facts.budgeted:
        return standing.asked
    # Under a budget nothing grows before the scaler has looked at everybody.
    return min(standing.asked, told.decision.replicas if told else standing.running or 0)


def _verdicts(facts: Facts, standing: Standing) -> list[Verdict]:
    told = facts.told
    ready = _scaling_ready(facts, standing)
    verdicts = [] if ready is None else [ready]
    if facts.budgeted and told is not None and (told.exceeded or told.decision.why == Why.BUDGET):
        text = told.exceeded or told.decision.message
        verdicts.append(Verdict(ConditionType.BUDGET_EXCEEDED, "True", Reason.BUDGET_EXCEEDED, text))
    return verdicts


def _scaling_ready(facts: Facts, standing: Standing) -> Verdict | None:
    """``None`` for a fixed count that nobody disputes."""
    type_ = ConditionType.SCALING_READY
    if facts.told is not None and facts.told.rival:
        return Verdict(type_, "False", Reason.SECOND_SCALER, facts.told.rival)
    if standing.mode == "BuiltIn":
        return _built_in(facts)
    if standing.asked != facts.replicas:
        text = (
            f"{standing.asked} pods stay, as they were when the scaler changed; spec.replicas says {facts.replicas}, "
            "and counts again once it is set to another value"
        )
        return Verdict(type_, "False", Reason.REPLICAS_HELD, text)
    if standing.mode == "External":
        return Verdict(type_, "True", Reason.EXTERNAL, "spec.replicas counts, which others write through /scale")
    return None


def _built_in(facts: Facts) -> Verdict:
    type_, told = ConditionType.SCALING_READY, facts.told
    if told is None or not told.acts:
        return Verdict(type_, "Unknown", Reason.PENDING, "no decision yet")
    decision = told.decision
    if decision.blind:
        return Verdict(type_, "False", str(decision.why), decision.message)
    if decision.why == Why.PAUSED:
        return Verdict(type_, "False", Reason.PAUSED, decision.message)
    if facts.auto is not None and facts.auto.dry_run:
        return Verdict(type_, "True", Reason.DRY_RUN, "decides and reports, but changes nothing")
    return Verdict(type_, "True", Reason.DECIDED_FROM_METRICS, "")


def _status(facts: Facts, standing: Standing, count: int, now: datetime) -> Manifest | None:
    """``status.scaling``, with the figures of the last decision that changed something: theirs move all the time."""
    if standing.mode == "Fixed" and standing.asked == facts.replicas:
        return None
    built_in, before = standing.mode == "BuiltIn", counts.told_before(facts.live)
    kept: Manifest = {
        "mode": standing.mode,
        "replicas": count if built_in else standing.asked,
        "specReplicas": facts.replicas,
    }
    if not built_in or facts.told is None or not facts.told.acts:
        return _wire(kept if before is None or not built_in else before.to_wire() | kept)
    decision = facts.told.decision
    kept["desiredReplicas"] = decision.wished
    if before is not None and not _news(before, kept, decision):
        return _wire(before.to_wire() | kept)
    told: Manifest = {
        "lastDecisionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "reason": shorten(f"{decision.why}: {decision.message}"),
        "inputs": dict(decision.inputs),
    }
    return _wire(kept | told)


def _wire(scaling: Manifest) -> Manifest:
    """Without empty figures: applied over some, an empty map becomes null, which the API server refuses."""
    made = ScalingStatus.model_validate(scaling).to_wire()
    return made if made["inputs"] else {name: value for name, value in made.items() if name != "inputs"}


def _news(before: ScalingStatus, kept: Manifest, decision: Decision) -> bool:
    """A first decision, another count, or the beginning or end of something that a person should know."""
    old = before.to_wire()
    if not before.reason or any(old.get(name) != value for name, value in kept.items()):
        return True
    why = before.reason.partition(":")[0]
    return why != decision.why and (why in _LOUD or decision.why in _LOUD)


def _events(standing: Standing, count: int, told: Told | None) -> tuple[Event, ...]:
    if standing.mode != "BuiltIn" or told is None or not told.acts or standing.present in {None, count}:
        return ()
    decision = told.decision
    figures = ", ".join(f"{name} {value}" for name, value in decision.inputs.items())
    text = f"{standing.present} -> {count} pods: {decision.why}: {decision.message}"
    return (Event("Normal", Reason.SCALED, shorten(f"{text} ({figures})" if figures else text)),)
