"""Which replica count is in effect, whoever decides. Pure.

The count in effect and what it was settled against stand in ``status.scaling``. ``spec.replicas`` alone cannot say it:
the built-in scaler never writes it, and a manifest that stops naming it may reset it to its default (1) in the same
moment in which somebody else takes over. So a switch keeps the count, and ``spec.replicas`` counts again once it is
changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import ValidationError

from sunfleet_api.scaling import Autoscaling, ScalingStatus
from sunfleet_operator.types import Json, spec_of, status_of

Mode = Literal["Fixed", "BuiltIn", "External"]
_DEFAULT_REPLICAS: Final = 1


@dataclass(frozen=True)
class Standing:
    """Before any decision. ``present``: the count in effect, ``None`` for an object without pods yet; ``running``: what
    its Deployments want now. ``asked``: what to have as long as no scaler says otherwise."""

    mode: Mode
    present: int | None
    running: int | None
    asked: int


def mode(auto: Autoscaling | None) -> Mode:
    return "Fixed" if auto is None else auto.mode


def told_before(live: Json) -> ScalingStatus | None:
    """``status.scaling`` of an object, ``None`` when there is none that can be read."""
    found = status_of(live).get("scaling")
    try:
        return ScalingStatus.model_validate(found) if found else None
    except ValidationError:
        return None


def standing(live: Json, replicas: int, auto: Autoscaling | None, deployments: Sequence[Json]) -> Standing:
    """From the object, its ``spec.replicas`` and ``autoscaling``, and its Deployments."""
    now, before, running = mode(auto), told_before(live), _running(deployments)
    present = running if before is None or before.replicas is None else before.replicas
    if now == "BuiltIn" and auto is not None:
        first = min(max(replicas, 1, auto.min_replicas), auto.max_replicas)
        return Standing(now, present, running, first if present is None else present)
    if present is None:
        return Standing(now, None, running, replicas)
    return Standing(now, present, running, _settled(now, present, replicas, before))


def _settled(now: Mode, present: int, replicas: int, before: ScalingStatus | None) -> int:
    """The count of an object that does not scale by itself."""
    if before is None:  # fixed until now: what spec.replicas fell to while somebody else took over is nobody's wish
        return replicas if now == "Fixed" else present
    changed = replicas != before.spec_replicas
    if before.mode == now:
        return replicas if changed else present
    return replicas if now == "Fixed" and changed and replicas != _DEFAULT_REPLICAS else present


def _running(deployments: Sequence[Json]) -> int | None:
    return sum(int(spec_of(live).get("replicas", 1)) for live in deployments) if deployments else None
