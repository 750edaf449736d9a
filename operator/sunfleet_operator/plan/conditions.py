"""Conditions: verdicts with a memory of when they last changed, and the roll-up into ``Ready``. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sunfleet_api.conditions import MAX_MESSAGE, ConditionStatus, ConditionType, Reason
from sunfleet_operator.plan.actions import Event
from sunfleet_operator.types import Manifest

# Only these are worth an Event: the others follow from them.
_WARN_WHEN_FALSE: Final = frozenset(
    {
        ConditionType.READY,
        ConditionType.ACCEPTED,
        ConditionType.WEIGHTS_READY,
        ConditionType.RESOLVED_REFS,
        ConditionType.KV_COMPATIBLE,
        ConditionType.KV_CONTRACT_KNOWN,
        ConditionType.SCALING_READY,
        ConditionType.VERIFIED,
        ConditionType.ROUTER_SYNCED,
    }
)
_WARN_WHEN_TRUE: Final = frozenset(
    {ConditionType.DELETION_BLOCKED, ConditionType.FIELDS_IGNORED, ConditionType.BUDGET_EXCEEDED}
)
# False for a while by nature; a Warning would cry wolf.
_CALM: Final = frozenset(
    {
        Reason.PENDING,
        Reason.RESOLVING,
        Reason.QUANTIZING,
        Reason.ROLLING_OUT,
        Reason.MINIMUM_REPLICAS_UNAVAILABLE,
        Reason.DECODER_NOT_READY,
        Reason.PAUSED,
        Reason.DECODER_NOT_FOUND,
        Reason.REPLICAS_HELD,
        Reason.ROUTES_PENDING,
        Reason.NO_ROUTER,  # true of all tasks at once, and what the routers' own Deployment tells
    }
)


_CALM_PROGRESS: Final = frozenset(
    {Reason.ROLLING_OUT, Reason.ROLLOUT_COMPLETE, Reason.RUNNING, Reason.SUSPENDED, Reason.STARTED, Reason.COMPLETED}
)


@dataclass(frozen=True)
class Verdict:
    """One condition as it is now, without history."""

    type: ConditionType
    status: ConditionStatus
    reason: str
    message: str = ""


def ready(verdicts: Iterable[Verdict], order: Sequence[ConditionType], *, zero: bool) -> Verdict:
    """The roll-up: the first in ``order`` that is not True gives its reason; a roll-out under way is not ready either.

    ``zero``: no replicas are wanted, and none is right.
    """
    given = {verdict.type: verdict for verdict in verdicts}
    progressing = given.get(ConditionType.PROGRESSING)
    if progressing is not None and progressing.reason == Reason.CHILD_REFUSED:  # the cause of whatever else is missing
        return Verdict(ConditionType.READY, "False", Reason.CHILD_REFUSED, f"Progressing: {progressing.message}")
    for type_ in order:
        verdict = given.get(type_)
        if verdict is not None and verdict.status != "True":
            return Verdict(ConditionType.READY, "False", verdict.reason, f"{type_}: {verdict.message}")
    if progressing is not None and (progressing.status == "True" or progressing.reason != Reason.ROLLOUT_COMPLETE):
        return Verdict(ConditionType.READY, "False", progressing.reason, f"Progressing: {progressing.message}")
    if zero:
        return Verdict(ConditionType.READY, "True", Reason.SCALED_TO_ZERO, "No replicas are wanted.")
    return Verdict(ConditionType.READY, "True", Reason.READY, "")


def merge(
    verdicts: Iterable[Verdict], live: Iterable[Mapping[str, Any]], *, generation: int, now: datetime
) -> list[Manifest]:
    """Conditions for the status, ``Ready`` first. Types without a verdict vanish; an unchanged status keeps its
    time."""
    before = {condition.get("type"): condition for condition in live}
    ordered = sorted(verdicts, key=lambda verdict: verdict.type != ConditionType.READY)
    return [_condition(verdict, before.get(verdict.type), generation, now) for verdict in ordered]


def _condition(verdict: Verdict, before: Mapping[str, Any] | None, generation: int, now: datetime) -> Manifest:
    same = before is not None and before.get("status") == verdict.status and before.get("lastTransitionTime")
    return {
        "type": str(verdict.type),
        "status": verdict.status,
        "reason": str(verdict.reason),
        "message": shorten(verdict.message),
        "observedGeneration": generation,
        "lastTransitionTime": before["lastTransitionTime"] if before and same else now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def shorten(message: str) -> str:
    """At most ``MAX_MESSAGE`` characters; what is cut is marked."""
    return message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 3] + "..."


def events(verdicts: Iterable[Verdict], live: Iterable[Mapping[str, Any]]) -> tuple[Event, ...]:
    """One Event for each condition whose status or reason changed, if a person would want to know."""
    before = {c.get("type"): (c.get("status"), c.get("reason")) for c in live}
    return tuple(
        Event(kind, str(verdict.reason), shorten(verdict.message) or f"{verdict.type} is {verdict.status}")
        for verdict in verdicts
        if before.get(verdict.type) != (verdict.status, str(verdict.reason))
        and (kind := _event_kind(verdict)) is not None
    )


def _event_kind(verdict: Verdict) -> str | None:
    if verdict.status == "Unknown":
        return None
    if verdict.type in _WARN_WHEN_TRUE:
        return "Warning" if verdict.status == "True" else None
    if verdict.type == ConditionType.PROGRESSING:
        return "Normal" if verdict.reason in _CALM_PROGRESS else "Warning"
    if verdict.type not in _WARN_WHEN_FALSE:
        return None
    if verdict.status == "True":
        return "Normal" if verdict.type == ConditionType.READY else None
    # The condition that a False Ready comes from has an Event of its own.
    return None if verdict.type == ConditionType.READY or verdict.reason in _CALM else "Warning"
