"""A tuned prefill module on disk: a plain peft adapter, and ``sunfleet.json`` that says how it came about.

Any engine that reads peft adapters reads this one; ``sunfleet.json`` is for the operator (which decoder was it tuned
against?) and for people.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final, Literal

import torch
from peft import PeftModel
from pydantic import BaseModel, ConfigDict
from safetensors.torch import load_file, save_file

from sunfleet_api.files import META_FILE, relevant_files
from sunfleet_api.fingerprint import decoder_digest, digest_of_files
from sunfleet_tuner.files import whole_folder

ADAPTER_FILE: Final = "adapter_model.safetensors"
SCHEMA_VERSION: Final = 1


class Accuracy(BaseModel):
    """Right answers of ``total`` held-out rows, with ``prefill`` over the prompt and ``decode`` afterwards."""

    model_config = ConfigDict(frozen=True)
    prefill: str
    decode: str
    correct: int
    total: int


class CheckpointMeta(BaseModel):
    """Contents of ``sunfleet.json``."""

    model_config = ConfigDict(frozen=True)
    schema_version: int = SCHEMA_VERSION
    method: Literal["prefill-only-lora"] = "prefill-only-lora"
    # The decoder must not run the last prompt token again: the prefill module was tuned to make the first token itself.
    first_token: Literal["prefill"] = "prefill"  # noqa: S105 - a token of text
    tuned_against: str = ""  # decoder digest
    task: str = ""
    hyperparameters: dict[str, Any] = {}
    metrics: dict[str, float] = {}
    accuracy: list[Accuracy] = []


def checkpoint_digest(folder: Path) -> str:
    """The checkpoint's identity as the resolver reports it: a decoder's digest is that of its files."""
    names = relevant_files(path.name for path in folder.iterdir())
    hashes = {}
    for name in names:
        with (folder / name).open("rb") as stream:
            hashes[name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return decoder_digest(digest_of_files(hashes))


def save_adapter(model: PeftModel, target: Path, meta: CheckpointMeta, base_name: str) -> None:
    """Write the adapter in bfloat16 with ``meta``; ``base_name`` is what peft calls the base, a name and not a path."""
    model.peft_config[model.active_adapter].base_model_name_or_path = base_name
    with whole_folder(target) as draft:
        # Embeddings are the decoder's; "auto" would ask a hub whether they changed.
        model.save_pretrained(draft, save_embedding_layers=False)
        (draft / "README.md").unlink(missing_ok=True)  # peft's model card is an empty form
        tensors = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(draft / ADAPTER_FILE).items()}
        save_file(tensors, draft / ADAPTER_FILE, metadata={"format": "pt"})
        write_meta(draft, meta)


def write_meta(folder: Path, meta: CheckpointMeta) -> None:
    (folder / META_FILE).write_text(json.dumps(meta.model_dump(), indent=2) + "\n")


def read_meta(folder: Path) -> CheckpointMeta:
    return CheckpointMeta.model_validate_json((folder / META_FILE).read_text())
