"""Identities: equal inputs give equal ones, any change another one, and differences are told in words."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunfleet_api.fingerprint import (
    EngineContract,
    adapter_relevant,
    cache_salt,
    canonical,
    checkpoint_fingerprint,
    compare,
    decoder_digest,
    digest_of_files,
    fingerprint,
    kv_relevant,
    revision_hash,
)
from sunfleet_api.worker import ResolverReport

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "hidden_size": 576,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "rope_theta": 100000,
}
CONTRACT = EngineContract(
    dtype="bfloat16", kv_cache_dtype="auto", block_size=16, tensor_parallel_size=1, engine="worker:1"
)
DECODER = ResolverReport(config=kv_relevant(CONFIG), tokenizer_hash="sha256:aa")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def _task(**changes: Any) -> ResolverReport:
    return ResolverReport(config=kv_relevant(CONFIG | changes), tokenizer_hash="sha256:aa")


def _digest(contract: EngineContract = CONTRACT, tokenizer: str = "sha256:aa", **changes: Any) -> str:
    return fingerprint(kv_relevant(CONFIG | changes), tokenizer, contract).digest


def test_the_fingerprint_is_versioned_and_fits_a_label() -> None:
    made = fingerprint(DECODER.config, DECODER.tokenizer_hash, CONTRACT)
    assert made.version == 1
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", made.digest)
    assert made.label == made.digest.removeprefix("sha256:")[:32]


def test_the_fingerprint_of_version_1_never_changes() -> None:
    # Live pods carry it as a label: another value here needs another FINGERPRINT_VERSION.
    assert _digest() == "sha256:91fdcaae3692ff5b3c95a7c22c7d1eab313fad6f27cfbc6e7a3828336d70eec5"


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 31},
        {"rope_theta": 10000},
        {"vocab_size": 49153},
        {"head_dim": 128},
        {"model_type": "qwen3"},
    ],
)
def test_another_architecture_has_another_fingerprint(changes: dict[str, Any]) -> None:
    assert _digest(**changes) != _digest()


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "float16"},
        {"kv_cache_dtype": "fp8"},
        {"block_size": 32},
        {"tensor_parallel_size": 2},
        {"engine": "worker:2"},
        {"connector": "other-1"},
    ],
)
def test_another_engine_contract_has_another_fingerprint(changes: dict[str, Any]) -> None:
    assert _digest(CONTRACT.model_copy(update=changes)) != _digest()


def test_an_attention_backend_is_part_of_the_fingerprint_once_it_is_chosen() -> None:
    """The engines' handshake refuses unequal ones, so pods that differ in it must not be paired."""
    chosen = {
        _digest(CONTRACT.model_copy(update={"attention_backend": name})) for name in ("", "FLASH_ATTN", "XFORMERS")
    }
    assert len(chosen) == 3
    assert _digest() in chosen


@pytest.mark.parametrize(
    "declared",
    [
        {"kv_cache_scheme": {"num_bits": 8, "type": "float"}},
        {"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"},
        {"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "FP8"}},
    ],
    ids=["compressed-tensors", "modelopt", "modelopt, nested"],
)
def test_a_checkpoint_with_scales_of_its_own_for_the_kv_cache_fits_no_other(declared: dict[str, Any]) -> None:
    scaled = _task(quantization_config=declared)
    for decoder, task, whose in (
        (DECODER, scaled, "task"),
        (scaled, _task(), "decoder"),
        (scaled, scaled, "of the task"),
    ):
        (fault,) = compare(decoder, task)
        assert whose in fault
        assert "kv_cache_scheme" in fault


def test_weight_only_quantisation_says_nothing_of_the_kv_cache() -> None:
    assert (
        compare(DECODER, _task(quantization_config={"quant_method": "compressed-tensors", "kv_cache_scheme": None}))
        == []
    )


def test_another_tokenizer_has_another_fingerprint() -> None:
    assert _digest(tokenizer="sha256:bb") != _digest()


def test_auto_is_the_compute_type() -> None:
    assert _digest(CONTRACT.model_copy(update={"kv_cache_dtype": "bfloat16"})) == _digest()


def test_the_longest_context_is_no_part_of_the_fingerprint() -> None:
    assert _digest(max_position_embeddings=4096) == _digest()
    assert compare(DECODER, _task(max_position_embeddings=4096)) == []


def test_equal_modules_do_not_differ() -> None:
    assert compare(DECODER, _task()) == []


def test_differences_are_told_with_both_values() -> None:
    task = _task(rope_theta=500000, num_hidden_layers=32, sliding_window=4096)
    assert compare(DECODER, task) == [
        "num_hidden_layers: decoder 30, task 32",
        "rope_theta: decoder 100000, task 500000",
        "sliding_window: decoder unknown, task 4096",
    ]


def test_another_tokenizer_is_a_difference_and_an_unknown_one_is_too() -> None:
    other = _task().model_copy(update={"tokenizer_hash": "sha256:bb"})
    assert compare(DECODER, other) == ["tokenizer: decoder sha256:aa, task sha256:bb"]
    unknown = _task().model_copy(update={"tokenizer_hash": ""})
    assert compare(DECODER, unknown) == ["tokenizer: decoder sha256:aa, task unknown"]
    nobody = DECODER.model_copy(update={"tokenizer_hash": ""})
    assert compare(nobody, unknown) == ["tokenizer: decoder unknown, task unknown"]


def test_what_was_not_read_is_not_trusted() -> None:
    nothing = ResolverReport()
    assert compare(DECODER, nothing) == ["config: task unknown"]
    assert compare(nothing, nothing) == ["config: decoder and task unknown"]


def test_a_plain_lora_adapter_fits() -> None:
    adapter = ResolverReport(config=adapter_relevant({"peft_type": "LORA", "r": 16}))
    assert compare(DECODER, adapter) == []


FACTS = st.fixed_dictionaries(
    {},
    optional={
        "num_hidden_layers": st.sampled_from([30, 31]),
        "rope_theta": st.sampled_from([10000, 100000.0, None]),
        "rope_scaling": st.sampled_from([None, {"rope_type": "linear", "factor": 2.0}]),
        "sliding_window": st.sampled_from([None, 4096]),
        "max_position_embeddings": st.sampled_from([4096, 8192]),
        "layer_types": st.sampled_from([None, ["full_attention"] * 30]),
    },
)


@given(FACTS, FACTS)
def test_modules_that_do_not_differ_are_those_with_one_fingerprint(one: dict[str, Any], other: dict[str, Any]) -> None:
    differences = compare(_task(**one), _task(**other))
    assert (differences == []) == (_digest(**one) == _digest(**other)), differences
    parts = [checkpoint_fingerprint(report.config, report.tokenizer_hash) for report in (_task(**one), _task(**other))]
    assert (differences == []) == (parts[0] == parts[1]), "what a checkpoint decides by itself tells the same"


@pytest.mark.parametrize(
    ("config", "tokenizer", "says"),
    [
        ({"peft_type": "IA3"}, "", "peft_type: IA3, but the engine loads only LORA"),
        ({}, "", "peft_type: unknown, but"),
        ({"peft_type": "LORA", "use_dora": True}, "", "use_dora: true"),
        ({"peft_type": "LORA", "bias": "all"}, "", "bias: all"),
        ({"peft_type": "LORA", "modules_to_save": ["lm_head"]}, "", 'modules_to_save: ["lm_head"]'),
        ({"peft_type": "LORA"}, "sha256:bb", "tokenizer: decoder sha256:aa, task sha256:bb"),
    ],
)
def test_an_adapter_that_the_engine_cannot_load_exactly_is_refused(
    config: dict[str, Any], tokenizer: str, says: str
) -> None:
    (difference,) = compare(DECODER, ResolverReport(config=adapter_relevant(config), tokenizer_hash=tokenizer))
    assert difference.startswith(says)


@given(st.lists(st.tuples(st.text(), st.text(), st.text()), min_size=2, max_size=2, unique=True))
def test_no_two_revisions_share_a_salt(revisions: list[tuple[str, str, str]]) -> None:
    one, other = (cache_salt(*revision) for revision in revisions)
    assert one != other
    assert re.fullmatch(r"[0-9a-f]{32}", one)


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_a_revision_hash_does_not_depend_on_order(payload: dict[str, Any]) -> None:
    reordered = dict(reversed(list(payload.items())))
    assert revision_hash("SunModel", payload) == revision_hash("SunModel", reordered)
    assert re.fullmatch(r"[0-9a-f]{8}", revision_hash("SunModel", payload))


@given(JSON, JSON)
def test_canonical_json_is_equal_only_for_equal_values(one: Any, other: Any) -> None:
    assert (canonical(one) == canonical(other)) == (_typed(one) == _typed(other))


def _typed(value: Any) -> Any:
    """Python takes True for 1; JSON does not."""
    if isinstance(value, dict):
        return {name: _typed(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_typed(entry) for entry in value]
    return (type(value).__name__, value)


def test_kinds_do_not_share_revision_hashes() -> None:
    assert revision_hash("SunModel", {"a": 1}) != revision_hash("SharedDecoder", {"a": 1})


def test_a_number_that_is_no_json_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical({"a": float("nan")})


def test_a_quantised_decoder_is_known_by_its_quantised_weights() -> None:
    assert decoder_digest("sha256:a") == "sha256:a"
    assert decoder_digest("sha256:a", "sha256:q") == "sha256:q"


def test_a_checkpoints_digest_covers_names_and_contents() -> None:
    files = {"model.safetensors": "aa", "config.json": "bb"}
    assert digest_of_files(files) == digest_of_files(dict(reversed(list(files.items()))))
    assert digest_of_files(files) != digest_of_files(files | {"config.json": "cc"})
    assert digest_of_files(files) != digest_of_files({"model.safetensors": "aa", "config2.json": "bb"})
