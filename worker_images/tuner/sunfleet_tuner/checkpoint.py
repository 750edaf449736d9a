"""What lies in a tuned prefill module's folder beside its tensors: ``sunfleet.json``, and identities of checkpoints.

Any engine that reads peft adapters or transformers weights reads these; ``sunfleet.json`` is for the operator (which
decoder was it tuned against?) and for people.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, Literal

import torch
from peft import PeftModel, get_peft_model_state_dict
from pydantic import BaseModel, ConfigDict
from safetensors.torch import save_file

from sunfleet_api.digests import KVFingerprint
from sunfleet_api.files import META_FILE
from sunfleet_api.fingerprint import decoder_digest
from sunfleet_tuner.files import whole_folder
from sunfleet_tuner.weights import describe

ADAPTER_FILE: Final = "adapter_model.safetensors"
SCHEMA_VERSION: Final = 2  # 1 had no data, decoder, base, tokenizer, KV fingerprint and versions


class Accuracy(BaseModel):
    """Right answers of ``total`` held-out rows, with ``prefill`` over the prompt and ``decode`` afterwards."""

    model_config = ConfigDict(frozen=True)
    prefill: str
    decode: str
    correct: int
    total: int


class Weights(BaseModel):
    """A checkpoint by name (no path of somebody's machine) and digest."""

    model_config = ConfigDict(frozen=True)
    name: str = ""
    digest: str = ""


class DataMeta(BaseModel):
    """What a module was tuned on."""

    model_config = ConfigDict(frozen=True)
    name: str = ""
    digest: str = ""  # over the token ids of training and validation rows
    training_rows: int = 0
    validation_rows: int = 0
    dropped: dict[str, int] = {}  # reason -> rows


class CheckpointMeta(BaseModel):
    """Contents of ``sunfleet.json``."""

    model_config = ConfigDict(frozen=True)
    schema_version: int = SCHEMA_VERSION
    method: Literal["prefill-only-lora", "prefill-only-full"] = "prefill-only-lora"
    # The decoder must not run the last prompt token again: the prefill module was tuned to make the first token itself.
    first_token: Literal["prefill"] = "prefill"  # noqa: S105 - a token of text
    tuned_against: str = ""  # decoder digest
    decoder: Weights = Weights()
    base: Weights = Weights()  # what tuning started from
    kv_fingerprint: KVFingerprint = KVFingerprint()  # the part that the checkpoint decides, without an engine
    tokenizer_hash: str = ""
    name: str = ""
    task: str = ""
    hyperparameters: dict[str, Any] = {}
    data: DataMeta = DataMeta()
    metrics: dict[str, float] = {}
    accuracy: list[Accuracy] = []
    decoder_tensors: str = ""  # sha256 of every bit of the decoder in memory, the same before and after tuning
    frozen: list[str] = []  # parameters that could get no gradient and were left as they are
    versions: dict[str, str] = {}


def checkpoint_digest(folder: Path) -> str:
    """The checkpoint's identity as the resolver reports it: a decoder's digest is that of its files."""
    return decoder_digest(describe(folder).digest)


def save_adapter(model: PeftModel, target: Path, meta: CheckpointMeta, base_name: str) -> None:
    """Write the adapter in bfloat16 with ``meta``; ``base_name`` is what peft calls the base, a name and not a path."""
    with whole_folder(target) as draft:
        write_adapter(draft, model, base_name)
        write_meta(draft, meta)


def write_adapter(
    folder: Path, model: PeftModel, base_name: str, tensors: dict[str, torch.Tensor] | None = None
) -> None:
    """Write a plain peft adapter in bfloat16; ``tensors``, by ``model``'s names, stand for its own when given."""
    config = model.peft_config[model.active_adapter]
    config.base_model_name_or_path = base_name
    config.inference_mode = True
    config.save_pretrained(folder)
    # Embeddings are the decoder's; "auto" would ask a hub whether they changed.
    state = get_peft_model_state_dict(model, state_dict=tensors, save_embedding_layers=False)
    half = {name: tensor.detach().to(torch.bfloat16).cpu().contiguous() for name, tensor in state.items()}
    save_file(half, folder / ADAPTER_FILE, metadata={"format": "pt"})


def write_meta(folder: Path, meta: CheckpointMeta) -> None:
    (folder / META_FILE).write_text(json.dumps(meta.model_dump(), indent=2) + "\n")


def read_meta(folder: Path) -> CheckpointMeta:
    return CheckpointMeta.model_validate_json((folder / META_FILE).read_text())
