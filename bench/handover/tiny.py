"""A model so small that a token costs what the engine's own code costs.

A real one computes so long on a CPU, and where its weights happen to lie in memory makes so much of a difference, that
what a flow adds to a token does not show.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

_SHAPE = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 64,
}  # fmt: skip
_MAKE = """
import sys
from transformers import AutoConfig, AutoModelForCausalLM
AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(sys.argv[1])).save_pretrained(sys.argv[1])
"""


def tiny_model(python: Path, base: Path, target: Path) -> Path:
    """A checkpoint in ``target``: architecture, vocabulary and tokenizer of ``base``, two narrow layers at random.

    ``python``: the engine's.
    """
    target.mkdir(parents=True)
    for file in base.iterdir():
        if file.suffix != ".safetensors" and file.name != "config.json":
            (target / file.name).write_bytes(file.read_bytes())
    config = json.loads((base / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | _SHAPE))
    subprocess.run([python, "-W", "ignore", "-c", _MAKE, target], check=True, stdout=subprocess.DEVNULL)
    return target
