"""Fields without effect are named, and only those."""

from typing import Any

import pytest

from sunfleet_api.inactive import INACTIVE, inactive_fields
from sunfleet_api.prefill_pool import PrefillPoolSpec
from sunfleet_api.shared_decoder import SharedDecoderSpec
from sunfleet_api.sun_model import SunModelSpec

DECODER: dict[str, Any] = {"model": {"uri": "pvc://w"}}
MODEL: dict[str, Any] = {"decoderRef": {"name": "d"}, "prefill": {"weights": {"uri": "pvc://w"}}}
POOLED = {"adapter": {"uri": "pvc://a", "poolRef": {"name": "p"}}}
GIVEN_DECODER: dict[str, Any] = {"quantization": {"scheme": "W4A16", "outputUri": "pvc://q/w4"}}
GIVEN_MODEL: dict[str, dict[str, Any]] = {
    "canary": {"prefill": POOLED, "canary": {"prefill": {"adapter": {"uri": "pvc://b"}}}},
    "rollout.engineUpgrade": {"rollout": {"engineUpgrade": "Automatic"}},
}


def test_every_field_of_a_decoder_acts() -> None:
    assert inactive_fields(SharedDecoderSpec.model_validate(DECODER | GIVEN_DECODER)) == ()


@pytest.mark.parametrize("path", INACTIVE["SunModel"])
def test_a_models_field_without_effect_is_named(path: str) -> None:
    spec = SunModelSpec.model_validate(MODEL | GIVEN_MODEL[path])
    assert inactive_fields(spec) == (f"spec.{path}",)


@pytest.mark.parametrize("path", INACTIVE["PrefillPool"])
def test_a_pools_field_without_effect_is_named(path: str) -> None:
    given = {"decoderRef": {"name": "d"}, "model": {"uri": "pvc://w"}}
    spec = PrefillPoolSpec.model_validate(given | GIVEN_MODEL[path])
    assert inactive_fields(spec) == (f"spec.{path}",)


def test_several_are_named_in_order() -> None:
    given = GIVEN_MODEL["rollout.engineUpgrade"] | GIVEN_MODEL["canary"]
    spec = SunModelSpec.model_validate(MODEL | given)
    assert inactive_fields(spec) == ("spec.canary", "spec.rollout.engineUpgrade")


def test_a_canary_over_another_decoder_than_its_pools_is_named() -> None:
    canary = {"prefill": POOLED, "decoderRef": {"name": "w4"}}
    spec = SunModelSpec.model_validate(MODEL | {"prefill": POOLED, "canary": canary})
    assert inactive_fields(spec) == ("spec.canary",)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"replicas": 3, "paused": True},
        {"autoscaling": {"mode": "External", "maxReplicas": 3}},
        {"autoscaling": {"maxReplicas": 3}},
        {"rollout": {"maxSurge": 0, "maxUnavailable": 1, "engineUpgrade": "Manual", "profileUpdates": "Manual"}},
        {"verification": {"policy": "Enforce", "decoderMismatch": "Warn", "samplePerMillion": 5}},
        {"canary": {"decoderRef": {"name": "d"}}},
        {"traffic": {"weight": 2, "maxInFlight": 3}},
        {"prefill": {"adapter": {"uri": "pvc://a"}}},
        {"prefill": POOLED},
        {"prefill": POOLED, "canary": {"prefill": {"adapter": {"uri": "pvc://b", "poolRef": {"name": "p"}}}}},
    ],
)
def test_what_acts_or_asks_for_what_happens_anyway_is_not_named(given: dict[str, Any]) -> None:
    assert inactive_fields(SunModelSpec.model_validate(MODEL | given)) == ()
