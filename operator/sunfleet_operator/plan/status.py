"""The status as one server-side apply, sent only when it says something new. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sunfleet_api import names
from sunfleet_operator.plan import conditions
from sunfleet_operator.plan.actions import Event
from sunfleet_operator.plan.conditions import Verdict
from sunfleet_operator.types import Json, Manifest, metadata, status_of

# Of ours, what is left out when there is nothing to tell: then it has to go.
_OPTIONAL: Final = frozenset({"verification", "canary"})


def live_conditions(live: Json) -> Sequence[Mapping[str, Any]]:
    """The conditions of a live object, all of which are ours."""
    return status_of(live).get("conditions") or ()


def write(live: Json, fields: Mapping[str, Any], verdicts: Sequence[Verdict], now: datetime) -> Manifest | None:
    """The status manifest, or ``None`` when the live status equals it. ``fields`` are all of ours but the
    conditions."""
    generation = int(metadata(live).get("generation") or 0)
    status = {
        **fields,
        "observedGeneration": generation,
        "conditions": conditions.merge(verdicts, live_conditions(live), generation=generation, now=now),
    }
    if _same(status, live):
        return None
    meta = metadata(live)
    return {
        "apiVersion": names.API_VERSION,
        "kind": live["kind"],
        "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]},
        "status": status,
    }


def _same(status: Mapping[str, Any], live: Json) -> bool:
    before = {key: value for key, value in status_of(live).items() if key in status or key in _OPTIONAL}
    return {**status, "conditions": _by_type(status["conditions"])} == {
        **before,
        "conditions": _by_type(live_conditions(live)),
    }


def _by_type(given: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {str(condition["type"]): condition for condition in given}


def events(live: Json, verdicts: Sequence[Verdict]) -> tuple[Event, ...]:
    """Events for what changed against the live conditions."""
    return conditions.events(verdicts, live_conditions(live))
