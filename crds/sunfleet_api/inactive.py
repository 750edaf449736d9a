"""Fields that are accepted and do nothing; the operator names them in the condition ``FieldsIgnored``, and says why.

A field whose value asks for exactly what happens anyway (``engineUpgrade: Manual``) is not ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from sunfleet_api.base import ApiModel
from sunfleet_api.prefill_pool import PREFILL_POOL, PrefillPoolSpec
from sunfleet_api.sun_model import SUN_MODEL, SunModelSpec

# Path below spec -> whether this spec asks for something that does not happen.
_OF_MODEL: Final[Mapping[str, Callable[[SunModelSpec], bool]]] = {
    # Of a task whose adapter a pool serves: one with pods of its own, or over another decoder than the pool's.
    "canary": lambda spec: spec.canary is not None and not spec.canary.acts_in(spec.prefill),
    "rollout.engineUpgrade": lambda spec: spec.rollout.engine_upgrade != "Manual",
}
_OF_POOL: Final[Mapping[str, Callable[[PrefillPoolSpec], bool]]] = {
    "rollout.engineUpgrade": lambda spec: spec.rollout.engine_upgrade != "Manual",
}
ENGINE_UPGRADE: Final = "spec.rollout.engineUpgrade"
WHY: Final[Mapping[str, str]] = {
    "spec.canary": "a canary of a task in a PrefillPool stands in that pool, over its decoder",
    ENGINE_UPGRADE: "prefill pods run the engine of their decoder's revision, which reads no other's KV: the "
    "SharedDecoder's field decides",
}
# Kind -> paths that may be named.
INACTIVE: Final[Mapping[str, tuple[str, ...]]] = {
    SUN_MODEL.kind: tuple(_OF_MODEL),
    PREFILL_POOL.kind: tuple(_OF_POOL),
}


def inactive_fields(spec: ApiModel) -> tuple[str, ...]:
    """Paths such as ``spec.autoscaling`` of the fields that are set without effect, sorted."""
    if isinstance(spec, PrefillPoolSpec):
        return tuple(f"spec.{path}" for path, ignored in _OF_POOL.items() if ignored(spec))
    if not isinstance(spec, SunModelSpec):
        return ()
    return tuple(f"spec.{path}" for path, ignored in _OF_MODEL.items() if ignored(spec))
