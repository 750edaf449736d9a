"""The models: tolerant of newer servers, strict with people, and the same on the wire as in code."""

from typing import Any

import pytest
from pydantic import ValidationError

from sunfleet_api import names
from sunfleet_api.engine import EngineSpec
from sunfleet_api.kinds import KINDS, parse, parse_strict
from sunfleet_api.prefill import Prefill
from sunfleet_api.shared_decoder import SharedDecoder
from sunfleet_api.sun_model import SunModel
from sunfleet_api.traffic import GenerationDefaults
from sunfleet_api.worker import WorkerSettings

DECODER: dict[str, Any] = {
    "apiVersion": names.API_VERSION,
    "kind": "SharedDecoder",
    "metadata": {"name": "llama8b", "namespace": "platform", "uid": "u-1", "generation": 3},
    "spec": {"model": {"uri": "hf://org/base"}},
}
MODEL: dict[str, Any] = {
    "apiVersion": names.API_VERSION,
    "kind": "SunModel",
    "metadata": {"name": "maths", "namespace": "team"},
    "spec": {"decoderRef": {"name": "llama8b"}, "prefill": {"weights": {"uri": "pvc://weights/maths"}}},
}


def _with(document: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return document | {"spec": document["spec"] | spec}


def test_a_live_object_with_fields_of_a_newer_version_is_read() -> None:
    document = _with(DECODER, somethingNew={"a": 1}, engine={"dtype": "float32", "newer": True})
    decoder = parse(document | {"status": {"novel": 1, "replicas": 2}})
    assert isinstance(decoder, SharedDecoder)
    assert decoder.spec.engine.dtype == "float32"
    assert decoder.status.replicas == 2


def test_what_a_person_writes_may_hold_no_unknown_field_at_any_depth() -> None:
    document = _with(DECODER, engine={"extraArgs": [{"name": "seed", "vlaue": "1"}]})
    with pytest.raises(ValidationError, match=r"spec.engine.extraArgs.0.vlaue"):
        parse_strict(document)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "Prefill"}, "kind 'Prefill': expected one of SharedDecoder, SunModel, PrefillPool"),
        ({"kind": None}, "kind None"),
        ({"apiVersion": "serving.sunfleet.dev/v2"}, "apiVersion 'serving.sunfleet.dev/v2': expected"),
    ],
)
def test_another_kind_or_version_is_named(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse(DECODER | change)


def test_a_wrong_value_is_named_with_its_path() -> None:
    with pytest.raises(ValidationError, match=r"spec.replicas"):
        parse(_with(MODEL, replicas=-1))


def test_a_model_is_hashable_and_cannot_be_changed() -> None:
    model = SunModel.parse(MODEL)
    with pytest.raises(ValidationError, match="frozen"):
        model.spec.replicas = 2  # type: ignore[misc]


def test_given_is_what_was_written_and_wire_is_what_holds() -> None:
    document = _with(DECODER, rollout={"maxSurge": "25%"}, engine={"blockSize": 32})
    decoder = SharedDecoder.parse(document)
    assert decoder.spec.given() == document["spec"]
    wire = decoder.spec.to_wire()
    assert wire["rollout"]["maxSurge"] == "25%"
    assert wire["rollout"]["maxUnavailable"] == 0
    assert "image" not in wire["engine"]


@pytest.mark.parametrize("document", [DECODER, MODEL])
def test_the_wire_form_reads_back_as_the_same_object(document: dict[str, Any]) -> None:
    resource = parse_strict(document)
    assert parse_strict(resource.to_wire()) == resource


def test_the_openai_name_defaults_to_the_objects_name() -> None:
    assert SunModel.parse(MODEL).model_name == "maths"
    assert SunModel.parse(_with(MODEL, modelName="acme/maths")).model_name == "acme/maths"


def test_a_reference_defaults_to_the_namespace_of_its_holder() -> None:
    model = SunModel.parse(MODEL)
    assert model.key == "team/maths"
    assert model.spec.decoder_ref.resolve(model.metadata.namespace) == ("team", "llama8b")
    other = SunModel.parse(_with(MODEL, decoderRef={"name": "llama8b", "namespace": "platform"}))
    assert other.spec.decoder_ref.resolve("team") == ("platform", "llama8b")


def test_deletion_is_seen() -> None:
    assert not parse(DECODER).deleting
    assert parse(DECODER | {"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}}).deleting


def test_the_prefill_source_is_the_member_that_is_set() -> None:
    assert Prefill.model_validate({"weights": {"uri": "pvc://w"}}).source.uri == "pvc://w"
    assert Prefill.model_validate({"adapter": {"uri": "pvc://a"}}).source.uri == "pvc://a"
    with pytest.raises(ValueError, match="exactly one of weights and adapter"):
        _ = Prefill().source


@pytest.mark.parametrize(
    ("given", "checkpoint", "length"),
    [(None, 131_072, 8192), (None, 2048, 2048), (None, None, 8192), (4096, 2048, 4096), (16_384, None, 16_384)],
)
def test_the_context_length_is_what_was_asked_for_else_what_fits(
    given: int | None, checkpoint: int | None, length: int
) -> None:
    assert EngineSpec(max_model_len=given).context_length(checkpoint) == length


def test_generation_defaults_become_request_fields() -> None:
    defaults = GenerationDefaults.model_validate({"temperature": "0.7", "topP": "1", "maxTokens": 5, "topK": 20})
    assert defaults.request_fields() == {"temperature": 0.7, "top_p": 1.0, "max_tokens": 5, "top_k": 20}


def test_an_engine_argument_off_the_list_is_refused_and_the_list_is_told() -> None:
    with pytest.raises(ValidationError, match=r"'kv-transfer-config' may not be set; allowed are .*max-num-seqs"):
        EngineSpec.model_validate({"extraArgs": [{"name": "kv-transfer-config"}]})


def test_worker_settings_survive_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = EngineSpec.model_validate({"extraArgs": [{"name": "seed", "value": "1"}, {"name": "enforce-eager"}]})
    settings = WorkerSettings(role="decode", dtype="float32", extra_args=engine.extra_args, kv_fingerprint="ab")
    for name, value in settings.to_env().items():
        monkeypatch.setenv(name, value)
    assert WorkerSettings() == settings


@pytest.mark.parametrize("name", ["self_check", "overlap_steps"])
def test_what_is_on_by_default_is_left_to_whoever_switches_it_off(name: str) -> None:
    """A variable more in every template would be another template; one that is set by hand must get through."""
    variable = f"SUNFLEET_WORKER_{name.upper()}"
    assert variable not in WorkerSettings(role="decode").to_env()
    assert WorkerSettings.model_validate({"role": "decode", name: False}).to_env()[variable] == "False"


@pytest.mark.parametrize("kind", KINDS)
def test_the_longest_child_name_is_a_label(kind: str) -> None:
    longest = "-".join(("a" * names.MAX_OBJECT_NAME, "f" * names.REVISION_HASH_LENGTH, names.ROLE_RESOLVER))
    assert len(longest) <= 63, kind
