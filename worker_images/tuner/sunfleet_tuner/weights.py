"""Loads checkpoints into transformers models; a quantised one becomes the plain weights that engines compute with.

What a checkpoint is called (its digest) and what of it decides whether KV fits is computed as the resolver does it.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM
from transformers.utils.quantization_config import CompressedTensorsConfig

from sunfleet_api.checkpoint import kv_relevant
from sunfleet_api.files import CONFIG_FILE, TOKENIZER_FILES, tokenizer_hash, weight_files
from sunfleet_api.worker import ResolverReport
from sunfleet_tuner.files import folder_digest

_PLAIN_PARAMETERS = frozenset({"weight", "bias"})
_DAMAGED: Final = "is damaged, or was not downloaded whole"


def local_folder(name: str) -> Path:
    """``name`` if it is a folder, else the snapshot of the hub's model of that name (downloaded on first use)."""
    folder = Path(name).expanduser()
    if folder.is_dir() or folder.is_absolute() or name.count("/") != 1:
        return folder
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - slow, and a folder needs none

    return Path(snapshot_download(name))


def tensor_files(folder: Path) -> list[Path]:
    """The files that hold the weights, as transformers and the resolver choose them: some models come with a second
    copy in another layout. Raises FileNotFoundError where there is no safetensors file."""
    names = (path.name for path in folder.iterdir())
    found = [folder / name for name in weight_files(names) if name.endswith(".safetensors")]
    if not found:
        raise FileNotFoundError("its weights are no *.safetensors files: save it anew with save_pretrained")
    return found


def opened(file: Path) -> Any:
    """Its tensors; ValueError for a file that is damaged, or that Git LFS did not fetch."""
    try:
        return safe_open(file, framework="pt")
    except SafetensorError as error:
        raise ValueError(f"{file.name} {_DAMAGED}: {error}") from error


def load_model(folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    """The checkpoint in ``folder`` in evaluation mode, every weight a plain tensor of ``dtype``.

    Raises FileNotFoundError without a config.json, and ValueError for a kind of quantisation that is not
    compressed-tensors and for files that are damaged.
    """
    if not (folder / CONFIG_FILE).is_file():
        raise FileNotFoundError(f"{folder} holds no checkpoint (no {CONFIG_FILE})")
    try:
        return _loaded(folder, dtype)
    except SafetensorError as error:
        raise ValueError(f"{folder}: a file of it {_DAMAGED}: {error}") from error


def _loaded(folder: Path, dtype: torch.dtype) -> Any:
    scheme = quantization_of(folder)
    if scheme is None:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    if scheme.get("quant_method") != "compressed-tensors":
        raise ValueError(
            f"{folder} is quantised with {scheme.get('quant_method')}: only compressed-tensors checkpoints can be "
            "turned back into weights; quantise it with `sunfleet quantize`"
        )
    with warnings.catch_warnings():
        # "loading attributes will be overwritten with the one you passed": that is the wish.
        warnings.filterwarnings("ignore", message="You passed `quantization_config`")
        # compressed-tensors compiles functions when it is imported, and torch's compiler imports its own old parts.
        warnings.filterwarnings("ignore", message="`torch.jit", category=DeprecationWarning)
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, quantization_config=CompressedTensorsConfig(dequantize=True)
        )
    _forget_quantization(model)
    return model.to(dtype).eval()


def quantization_of(folder: Path) -> dict[str, Any] | None:
    """The ``quantization_config`` of a checkpoint; None for plain weights."""
    scheme: dict[str, Any] | None = json.loads((folder / CONFIG_FILE).read_text()).get("quantization_config")
    return scheme


def _forget_quantization(model: Any) -> None:
    """Leave linear layers with nothing but their weights: scales are parameters, and a scheme would be saved."""
    for module in model.modules():
        if not hasattr(module, "quantization_scheme"):
            continue
        for name in [name for name in module._parameters if name not in _PLAIN_PARAMETERS]:
            delattr(module, name)
        for name in ("quantization_scheme", "quantization_status", "forward"):
            vars(module).pop(name, None)
    vars(model.config).pop("quantization_config", None)
    model.hf_quantizer = None


def describe(folder: Path) -> ResolverReport:
    """What the resolver would report of a checkpoint: its digest, the facts KV depends on, the tokenizer's hash."""
    config = folder / CONFIG_FILE
    return ResolverReport(
        resolved_uri=str(folder),
        digest=folder_digest(folder),
        config=kv_relevant(json.loads(config.read_text())) if config.is_file() else {},
        tokenizer_hash=hash_of_tokenizer(folder),
    )


def hash_of_tokenizer(folder: Path) -> str:
    """``sha256:<hex>`` of the tokenizer in ``folder``; empty when there is none."""
    present = [name for name in TOKENIZER_FILES if (folder / name).is_file()]
    if "tokenizer.json" in present:
        present = ["tokenizer.json"]
    return tokenizer_hash({name: (folder / name).read_bytes() for name in present})


def tensors_digest(model: torch.nn.Module) -> str:
    """``sha256:<hex>`` over every bit of a model's tensors, adapters left out: equal only if all are equal."""
    digest = hashlib.sha256()
    own = {name.replace(".base_layer.", "."): t for name, t in model.state_dict().items() if ".lora_" not in name}
    for name, tensor in sorted(own.items()):
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor  # sharded over processes
        digest.update(f"{name} {whole.dtype} {tuple(whole.shape)}\n".encode())
        digest.update(whole.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return f"sha256:{digest.hexdigest()}"
