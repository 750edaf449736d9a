"""What one pod takes of a budgeted resource. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sunfleet_api import names
from sunfleet_api.engine import EngineSpec
from sunfleet_operator.build.engine_pod import default_resources
from sunfleet_operator.drift import parse_quantity
from sunfleet_operator.types import Json, spec_of


def each(
    engine: EngineSpec, overlay: Mapping[str, Any], deployments: Sequence[Json], resources: Sequence[str]
) -> dict[str, int]:
    """Units per pod: the most that the spec asks for or any live revision has, so that a roll-out fits too."""
    return {
        name: max([_asked(engine, overlay, name), *(_in_pod(_template(live), name) for live in deployments)])
        for name in resources
    }


def _template(deployment: Json) -> Json:
    found: Json = ((spec_of(deployment).get("template") or {}).get("spec")) or {}
    return found


def _asked(engine: EngineSpec, overlay: Mapping[str, Any], name: str) -> int:
    """Of a pod that does not exist yet: the overlay's resources of the engine, or what the operator gives it."""
    others = [c for c in overlay.get("containers") or () if c.get("name") != names.ENGINE_CONTAINER]
    mine: Json = next((c for c in overlay.get("containers") or () if c.get("name") == names.ENGINE_CONTAINER), {})
    amounts = mine.get("resources") or default_resources(engine.tensor_parallel_size)
    return _of(amounts, name) + sum(_of(c.get("resources") or {}, name) for c in others)


def _in_pod(spec: Json, name: str) -> int:
    """Containers add up; an init container runs before them, so only the larger of the two counts."""
    running = sum(_of(c.get("resources") or {}, name) for c in spec.get("containers") or ())
    starting = (_of(c.get("resources") or {}, name) for c in spec.get("initContainers") or ())
    return max([running, *starting])


def _of(resources: Mapping[str, Any], name: str) -> int:
    """Of extended resources the limit is also the request."""
    value = (resources.get("limits") or {}).get(name, (resources.get("requests") or {}).get(name))
    amount = parse_quantity(value) if value is not None else None
    return math.ceil(amount) if amount is not None else 0
