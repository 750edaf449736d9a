"""Facts of a config.json: the same model gives the same facts however it is written, another one does not."""

import json
from typing import Any

import pytest

from sunfleet_api.checkpoint import adapter_relevant, kv_relevant

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "rope_theta": 100000,
    "rope_scaling": None,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.40.1",
}
SCALED = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192}


def _with(**changes: Any) -> dict[str, Any]:
    return LLAMA | changes


def _without(*names: str, **changes: Any) -> dict[str, Any]:
    return {name: value for name, value in LLAMA.items() if name not in names} | changes


def test_the_facts_of_a_plain_checkpoint() -> None:
    assert kv_relevant(LLAMA) == {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "hidden_size": 576,
        "head_dim": 64,
        "vocab_size": 49152,
        "rope": {"rope_theta": 100000, "rope_type": "default"},
        "max_position_embeddings": 8192,
    }


@pytest.mark.parametrize(
    "same",
    [
        _with(rope_theta=100000.0, head_dim=64),
        _without("rope_theta", "rope_scaling", rope_parameters={"rope_theta": 100000.0, "rope_type": "default"}),
        _with(rope_parameters={"rope_theta": 100000, "rope_type": "default"}, rope_theta=1),
        _without("rope_scaling"),
        _with(layer_types=["full_attention"] * 30, sliding_window=None),
        _with(use_sliding_window=False, sliding_window=4096),
        _with(
            torch_dtype="float32", transformers_version="5.1.0", intermediate_size=1, quantization_config={"bits": 4}
        ),
        {"architectures": ["LlamaForCausalLM"], "model_type": "outer", "text_config": _without("architectures")},
    ],
)
def test_the_same_model_written_otherwise_gives_the_same_facts(same: dict[str, Any]) -> None:
    assert kv_relevant(same) == kv_relevant(LLAMA)


@pytest.mark.parametrize(
    "other",
    [
        _with(rope_theta=500000),
        _with(rope_scaling=SCALED),
        _without("rope_theta"),
        _with(num_hidden_layers=31),
        _with(num_key_value_heads=9),
        _with(head_dim=128),
        _with(vocab_size=49153),
        _with(sliding_window=4096),
        _with(layer_types=["sliding_attention", *["full_attention"] * 29]),
        _with(partial_rotary_factor=0.5),
        _with(model_type="mistral"),
        _with(kv_lora_rank=512),
    ],
)
def test_another_model_gives_other_facts(other: dict[str, Any]) -> None:
    assert kv_relevant(other) != kv_relevant(LLAMA)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            _with(rope_scaling=SCALED),
            _without("rope_theta", rope_parameters=SCALED | {"rope_theta": 100000}),
        ),
        (
            _with(rope_scaling={"type": "linear", "factor": 2}),
            _with(rope_scaling={"rope_type": "linear", "type": "linear", "factor": 2.0}),
        ),
        (
            _with(rope_local_base_freq=10000.0),
            _without(
                "rope_theta",
                rope_parameters={
                    "sliding_attention": {"rope_type": "default", "rope_theta": 10000},
                    "full_attention": {"rope_type": "default", "rope_theta": 100000},
                },
            ),
        ),
        (
            _with(partial_rotary_factor=0.5),
            _without("rope_theta", rope_parameters={"rope_theta": 100000, "partial_rotary_factor": 0.5}),
        ),
    ],
)
def test_rope_is_the_same_in_the_old_and_the_new_place(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert kv_relevant(one) == kv_relevant(other)


def test_a_scaled_rope_depends_on_the_length_that_it_scales() -> None:
    scaled = _with(rope_scaling={"rope_type": "dynamic", "factor": 2.0})
    assert kv_relevant(scaled)["rope"]["max_position_embeddings"] == 8192
    assert "max_position_embeddings" not in kv_relevant(LLAMA)["rope"]


def test_older_names_of_the_same_facts_are_read() -> None:
    facts = kv_relevant({"n_layer": 12, "n_head": 12, "n_embd": 768, "vocab_size": 50257, "n_positions": 1024})
    assert facts["num_hidden_layers"] == 12
    assert facts["head_dim"] == 64
    assert facts["max_position_embeddings"] == 1024


@pytest.mark.parametrize("missing", ["num_hidden_layers", "num_attention_heads", "hidden_size", "vocab_size"])
def test_a_config_of_something_else_is_refused_and_says_what_is_missing(missing: str) -> None:
    with pytest.raises(ValueError, match=f"config.json has no {missing}"):
        kv_relevant(_without(missing))


def test_the_facts_of_the_largest_models_fit_a_pods_report() -> None:
    large = _with(
        layer_types=(["sliding_attention"] * 5 + ["full_attention"]) * 20,
        rope_scaling={
            "rope_type": "longrope",
            "long_factor": [1.0 + i / 64 for i in range(64)],
            "short_factor": [1.0] * 64,
        },
        no_rope_layers=[1, 1, 1, 0] * 30,
    )
    assert len(json.dumps(kv_relevant(large))) < 2048


def test_long_tables_that_differ_in_one_entry_differ() -> None:
    def facts(last: float) -> dict[str, Any]:
        return kv_relevant(_with(rope_scaling={"rope_type": "longrope", "long_factor": [*range(63), last]}))

    assert facts(1.0) == facts(1)
    assert facts(1.0) != facts(1.5)


def test_the_facts_of_an_adapter() -> None:
    config: dict[str, Any] = {
        "peft_type": "LORA",
        "r": 16,
        "bias": "none",
        "base_model_name_or_path": "org/base",
        "lora_alpha": 32,
    }
    config["target_modules"] = ["v_proj", "q_proj"]
    assert adapter_relevant(config) == {
        "adapter": {
            "peft_type": "LORA",
            "rank": 16,
            "bias": "none",
            "use_dora": False,
            "modules_to_save": [],
            "target_modules": ["q_proj", "v_proj"],
            "base_model": "org/base",
        }
    }
