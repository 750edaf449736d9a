"""Every command of the recipes, with a tiny model of each architecture in the place of the billions of parameters."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from tests.packages.environments import ROOT, Python, succeeds, write_lines

RECIPES = (ROOT / "docs/recipes/README.md").read_text()
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
QWEN3 = """
import sys
from pathlib import Path
from transformers import Qwen3Config, Qwen3ForCausalLM
from tiny_models import tiny_checkpoint
folder = Path(sys.argv[1])
tiny_checkpoint(folder)
config = Qwen3Config(
    vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=8, eos_token_id=2, pad_token_id=2,
)
Qwen3ForCausalLM(config).save_pretrained(folder)
print(1)
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", RECIPES, re.MULTILINE | re.DOTALL)


def commands(start: str) -> list[list[str]]:
    lines = [shlex.split(line, comments=True) for line in "\n".join(blocks("sh")).splitlines()]
    return [words[1:] for words in lines if words[:1] == ["sunfleet"] and start in words]


@pytest.fixture(scope="module")
def qwen(tuner: Python) -> Path:
    folder = tuner.folder / "qwen3"
    tuner.ask(QWEN3, folder)
    return folder


@pytest.fixture(scope="module", autouse=True)
def rows(tuner: Python) -> None:
    """The files that the recipes' scripts make, with words that the tiny models know."""
    for name in ("gsm8k.jsonl", "gsm8k-test.jsonl"):
        turns = [
            ({"role": "user", "content": f"w{30 + n}"}, {"role": "assistant", "content": "w7 w9"}) for n in range(24)
        ]
        write_lines(tuner.folder / name, [{"messages": list(pair)} for pair in turns])


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_the_configuration_tunes_and_its_module_is_measured(
    tuner: Python, tiny: Path, qwen: Path, architecture: str
) -> None:
    decoder = {"llama": tiny, "qwen3": qwen}[architecture]
    (written,) = [block for block in blocks("yaml") if "decoder:" in block]
    folder = tuner.folder / architecture
    (tuner.folder / "llama-gsm8k.yaml").write_text(written)
    shorter = ["--decoder", decoder, "--output", folder, "--precision", "fp32", "--max-steps", "2", "--eval-steps", "1"]
    succeeds(tuner.command(["tune", "--config", "llama-gsm8k.yaml", *shorter]))
    assert json.loads((folder / "adapter_config.json").read_text())["peft_type"] == "LORA"
    (measuring,) = [words for words in commands("--decoder") if "--data" in words]
    put = {MODEL: str(decoder), "llama-gsm8k": str(folder)}
    told = succeeds(tuner.command([put.get(word, word) for word in measuring]))
    assert re.search(r"gsm8k-test.jsonl: \d+ of 24", told)


def test_full_weights_take_the_settings_of_their_column(tuner: Python, tiny: Path) -> None:
    words = ["tune", "--config", "llama-gsm8k.yaml", "--decoder", tiny, "--method", "full", "--learning-rate", "1e-5"]
    small = ["--output", tuner.folder / "full", "--precision", "fp32", "--max-steps", "1", "--micro-tokens", "8192"]
    succeeds(tuner.command([*words, *small, "--schedule", "cosine", "--warmup-percent", "3"]))
    assert (tuner.folder / "full" / "model.safetensors").is_file()
