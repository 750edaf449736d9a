"""Fields that are accepted and do nothing yet; the operator names them in the condition ``FieldsIgnored``.

A field whose value asks for exactly what happens anyway (``verification.policy: Off``) is not ignored.
"""

from __future__ import annotations

from collections.abc import Iterator

from sunfleet_api.scaling import Autoscaling, Rollout
from sunfleet_api.shared_decoder import SharedDecoderSpec
from sunfleet_api.sun_model import SunModelSpec


def inactive_fields(spec: SharedDecoderSpec | SunModelSpec) -> tuple[str, ...]:
    """Paths such as ``spec.autoscaling`` of the fields that are set without effect, sorted."""
    own = _of_decoder(spec) if isinstance(spec, SharedDecoderSpec) else _of_model(spec)
    return tuple(sorted({f"spec.{path}" for path in (*_shared(spec), *own)}))


def _shared(spec: SharedDecoderSpec | SunModelSpec) -> Iterator[str]:
    if spec.profile_refs:
        yield "profileRefs"
    if _scales(spec.autoscaling):
        yield "autoscaling"
    yield from _of_rollout(spec.rollout)


def _scales(autoscaling: Autoscaling | None) -> bool:
    """An external scaler needs nothing from us but /scale, which works."""
    return autoscaling is not None and autoscaling.mode != "External"


def _of_rollout(rollout: Rollout) -> Iterator[str]:
    if rollout.engine_upgrade == "Automatic":
        yield "rollout.engineUpgrade"
    if rollout.profile_updates == "Automatic":
        yield "rollout.profileUpdates"


def _of_decoder(spec: SharedDecoderSpec) -> Iterator[str]:
    if spec.quantization is not None:
        yield "quantization"
    if spec.gpu_budget:
        yield "gpuBudget"


def _of_model(spec: SunModelSpec) -> Iterator[str]:
    if spec.prefill.adapter is not None and spec.prefill.adapter.pool_ref is not None:
        yield "prefill.adapter.poolRef"
    if spec.traffic.weight != 1:
        yield "traffic.weight"
    if spec.verification is not None and spec.verification.policy != "Off":
        yield "verification"
    if spec.canary is not None:
        yield "canary"
