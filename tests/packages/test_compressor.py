"""GPTQ and AWQ by the real llmcompressor: the engine reads what came out and serves what is trained on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.packages.environments import Python, succeeds, sums, write_lines

METHODS = ("gptq", "awq")
ROWS = 16
TEXT = (
    "The capital of France is Paris, and the largest city of Norway is Oslo. 12 + 30 = 42. def add(a, b): return a + b"
)
# Float16 against float32 with the same weights: the largest difference of a log-probability.
ROUNDING = 0.1

QUANTISED_AS = """
import json, sys
from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors import CompressedTensorsConfig
config = json.load(open(sys.argv[1] + "/config.json"))["quantization_config"]
scheme = CompressedTensorsConfig.from_config(config)
(group,) = scheme.target_scheme_map.values()
weights = group["weights"]
print(json.dumps([scheme.quant_format, weights.num_bits, weights.group_size, weights.symmetric, scheme.ignore]))
"""
# Log-probabilities of a text's tokens by the weights that the tuner makes of a checkpoint; the first layer's values.
TOLD = """
import json, sys, torch
from pathlib import Path
from transformers import AutoTokenizer
from sunfleet_tuner.weights import load_model
model = load_model(Path(sys.argv[1]))
ids = AutoTokenizer.from_pretrained(sys.argv[1]).encode(sys.argv[2])
with torch.no_grad():
    out = model(torch.tensor([ids]), use_cache=True)
logprobs = out.logits[0].log_softmax(-1)
found = [float(logprobs[place - 1, token]) for place, token in enumerate(ids) if place]
values = out.past_key_values.layers[0].values.flatten()
print(json.dumps({"ids": ids, "logprobs": found, "values": values[:4096].tolist()}))
"""
# What the engine logs, until after its last request, goes where it disturbs nobody.
SERVED = """
import json, os, sys
os.environ["VLLM_LOGGING_STREAM"] = "ext://sys.stderr"
from vllm import LLM, SamplingParams
engine = LLM(sys.argv[1], dtype="float16", enforce_eager=True, max_model_len=256, kv_cache_memory_bytes=64 << 20)
ids = json.loads(sys.argv[2])
(answer,) = engine.generate([{"prompt_token_ids": ids}], SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0))
print()
print(json.dumps([answer.prompt_logprobs[place][token].logprob for place, token in enumerate(ids) if place]))
"""
MANY_HEADS = """
import sys, torch
from pathlib import Path
from transformers import LlamaConfig, LlamaForCausalLM
from tiny_models import tiny_checkpoint
folder = Path(sys.argv[1])
tiny_checkpoint(folder, width=64)
config = LlamaConfig.from_pretrained(folder, num_key_value_heads=4)
torch.manual_seed(0)
LlamaForCausalLM(config).save_pretrained(folder)
print(1)
"""


def quantised(
    tuner: Python, compressor: Python, base: Path, method: str, name: str, rows: list[Any], *flags: str
) -> Path:
    """The checkpoint that ``sunfleet quantize`` makes."""
    packed = tuner.folder / name
    data = write_lines(tuner.folder / f"{name}.jsonl", rows)
    words = ["quantize", base, packed, "--method", method, "--calibration", data, "--python", compressor.python]
    succeeds(tuner.command([*words, "--max-length", "128", *flags]))
    return packed


@pytest.fixture(scope="module")
def packed(tuner: Python, compressor: Python, cut: Path) -> dict[str, Path]:
    """Layers of the sample base by each method."""
    return {method: quantised(tuner, compressor, cut, method, method, sums(ROWS, 1)) for method in METHODS}


@pytest.fixture(scope="module")
def told(tuner: Python, cut: Path, packed: dict[str, Path]) -> dict[str, dict[str, Any]]:
    """What the base, and the tuner's weights of each checkpoint, say of the text."""
    return {name: tuner.ask(TOLD, folder, TEXT) for name, folder in {"base": cut, **packed}.items()}


@pytest.mark.parametrize("method", METHODS)
def test_the_engine_knows_the_format(engine: Python, packed: dict[str, Path], method: str) -> None:
    assert engine.ask(QUANTISED_AS, packed[method]) == ["pack-quantized", 4, 64, True, ["lm_head"]]


@pytest.mark.parametrize("method", METHODS)
def test_the_fleet_takes_it_for_a_decoder_of_the_same_kv(
    tuner: Python, cut: Path, packed: dict[str, Path], method: str
) -> None:
    """What the operator compares, by the resolver's own report."""
    script = (
        "import json, sys; from pathlib import Path; from sunfleet_api.fingerprint import compare; "
        "from sunfleet_tuner.weights import describe; "
        "print(json.dumps(list(compare(*(describe(Path(one)) for one in sys.argv[1:])))))"
    )
    assert tuner.ask(script, packed[method], cut) == []


@pytest.mark.parametrize("method", METHODS)
def test_it_still_speaks_as_its_base_does(told: dict[str, dict[str, Any]], method: str) -> None:
    base, quantised = (told[name]["logprobs"] for name in ("base", method))
    assert sum(quantised) / len(quantised) > sum(base) / len(base) - 0.5, "half a nat a token is a broken model"
    assert quantised != base


@pytest.mark.parametrize("method", METHODS)
def test_the_engine_serves_the_values_that_the_tuner_trains_against(
    engine: Python, packed: dict[str, Path], told: dict[str, dict[str, Any]], method: str
) -> None:
    served = engine.ask(SERVED, packed[method], json.dumps(told[method]["ids"]))
    worst = max(abs(one - other) for one, other in zip(served, told[method]["logprobs"], strict=True))
    apart = max(abs(one - other) for one, other in zip(told["base"]["logprobs"], told[method]["logprobs"], strict=True))
    assert worst < ROUNDING, (worst, apart)
    assert apart > 3 * ROUNDING, "the 16-bit base would pass as well"


def test_awq_leaves_values_in_the_units_of_the_16_bit_checkpoint(tuner: Python, compressor: Python) -> None:
    """Where heads of values are as many as heads, llmcompressor's own mappings scale them."""
    base = tuner.folder / "many-heads"
    tuner.ask(MANY_HEADS, base)
    rows = [{"prompt": " ".join(f"w{(7 * n + k) % 90 + 5}" for k in range(20)), "completion": "w7"} for n in range(16)]
    packed = quantised(tuner, compressor, base, "awq", "many-heads-awq", rows)
    text = " ".join(f"w{number}" for number in range(10, 60))
    ours, theirs = (tuner.ask(TOLD, folder, text)["values"] for folder in (base, packed))
    off = sum((one - other) ** 2 for one, other in zip(ours, theirs, strict=True)) / sum(one**2 for one in ours)
    assert off < 0.05, off


def test_a_prefill_module_is_tuned_against_it(tuner: Python, cut: Path, packed: dict[str, Path]) -> None:
    data, output = write_lines(tuner.folder / "rows.jsonl", sums(24, 2)), tuner.folder / "module"
    words = ["tune", "--decoder", packed["gptq"], "--init", cut, "--data", data, "--output", output]
    limits = ["--max-steps", "2", "--batch-rows", "4", "--precision", "fp32", "--rank", "4", "--golden-prompts", "2"]
    succeeds(tuner.command([*words, *limits]))
    meta = json.loads((output / "sunfleet.json").read_text())
    assert meta["tuned_against"] != meta["base"]["digest"]
    assert json.loads((output / "golden.json").read_text())["prompts"]
