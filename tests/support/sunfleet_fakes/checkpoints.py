"""Tiny checkpoints as file name -> content: real formats, a few hundred bytes of weights."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 64,
    "vocab_size": 32,
    "max_position_embeddings": 2048,
    "rope_theta": 10000.0,
}


def model_files(seed: int, **config: Any) -> dict[str, bytes]:
    """A model whose weights depend on ``seed``; ``config`` replaces values of its ``config.json``."""
    return {
        "config.json": _json({**_CONFIG, **config}),
        "generation_config.json": _json({"eos_token_id": 2}),
        "tokenizer.json": _json(tokenizer()),
        "tokenizer_config.json": _json({"model_max_length": 2048}),
        "model.safetensors": tensors(seed),
        "README.md": b"# A tiny model\n",
    }


def adapter_files(seed: int, tuned_against: str = "") -> dict[str, bytes]:
    """A LoRA adapter whose weights depend on ``seed``, with ``sunfleet.json``."""
    config = {
        "peft_type": "LORA",
        "r": 4,
        "lora_alpha": 8,
        "bias": "none",
        "target_modules": ["q_proj"],
        "base_model_name_or_path": "acme/base",
    }
    return {
        "adapter_config.json": _json(config),
        "adapter_model.safetensors": tensors(seed),
        "sunfleet.json": _json({"schema_version": 1, "tuned_against": tuned_against}),
    }


def tokenizer() -> dict[str, Any]:
    """A ``tokenizer.json`` as the tokenizers library writes it."""
    vocabulary = {letter: index for index, letter in enumerate("abcdefgh")}
    model = {"type": "BPE", "vocab": vocabulary, "merges": [["a", "b"]], "unk_token": None, "fuse_unk": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "model": model,
    }


def tensors(seed: int, size: int = 256) -> bytes:
    """A safetensors file with one tensor of ``size`` bytes."""
    data = random.Random(seed).randbytes(size)  # noqa: S311 - not for secrets
    header = _json({"weight": {"dtype": "BF16", "shape": [size // 2], "data_offsets": [0, size]}})
    return struct.pack("<Q", len(header)) + header + data


def write(folder: Path, files: dict[str, bytes]) -> Path:
    """Put the files into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def _json(value: object) -> bytes:
    return json.dumps(value, indent=2).encode()
