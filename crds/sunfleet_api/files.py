"""Which files of a checkpoint count, and the identity of its tokenizer. Pure: paths, sizes and contents are given.

A digest must be the same wherever a checkpoint lies (hub, claim, folder), so it covers only the files that decide what
an engine computes; the resolver, the download and the tuner all choose them here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

CONFIG_FILE: Final = "config.json"
ADAPTER_CONFIG_FILE: Final = "adapter_config.json"
META_FILE: Final = "sunfleet.json"  # how the module was tuned: copied and read, but no part of its identity

_WEIGHTS: Final = ("*.safetensors", "*.safetensors.index.json")
_PICKLED_WEIGHTS: Final = ("pytorch_model*.bin", "pytorch_model.bin.index.json", "adapter_model.bin")
_DUPLICATES: Final = ("consolidated*",)  # the same weights once more, in another layout
_SETTINGS: Final = (
    CONFIG_FILE,
    ADAPTER_CONFIG_FILE,
    "generation_config.json",
    "quantize_config.json",
    "hf_quant_config.json",
    "recipe.yaml",
    "chat_template.*",
)
_TOKENIZER: Final = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "*.model",
    "*.tiktoken",
)
# What tokens a text becomes is decided by these parts of a tokenizer.json; padding and truncation are the caller's.
_TOKENIZER_PARTS: Final = ("normalizer", "pre_tokenizer", "model", "added_tokens", "post_processor", "decoder")
TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt", "vocab.txt", "spiece.model")


def relevant_files(paths: Iterable[str]) -> list[str]:
    """The paths (relative, POSIX) that decide what an engine computes, sorted.

    Only the top folder counts. Pickled weights count where there are no safetensors.
    """
    top = sorted(path for path in paths if "/" not in path)
    weights = _matching(top, _WEIGHTS)
    plain = [path for path in weights if not _matches(path, _DUPLICATES)]
    return sorted({*(plain or weights or _matching(top, _PICKLED_WEIGHTS)), *_matching(top, (*_SETTINGS, *_TOKENIZER))})


def weight_files(paths: Iterable[str]) -> list[str]:
    """Those of :func:`relevant_files` that hold tensors."""
    return [path for path in relevant_files(paths) if path.endswith((".safetensors", ".bin"))]


def tokenizer_hash(contents: Mapping[str, bytes]) -> str:
    """``sha256:<hex>`` of a tokenizer from the contents of its :data:`TOKENIZER_FILES`; empty when there are none.

    A ``tokenizer.json`` counts by what it does, not by how its writer's version spelled it. Raises :class:`ValueError`
    when it is no JSON object.
    """
    if "tokenizer.json" in contents:
        return _sha256(_normal_form(json.loads(contents["tokenizer.json"])))
    raw = {name: hashlib.sha256(contents[name]).hexdigest() for name in TOKENIZER_FILES if name in contents}
    return _sha256(raw) if raw else ""


def _normal_form(tokenizer: Any) -> dict[str, Any]:
    if not isinstance(tokenizer, dict):
        raise ValueError("tokenizer.json holds no JSON object")  # noqa: TRY004 - like every other malformed file
    parts: dict[str, Any] = {name: _without_defaults(tokenizer.get(name)) for name in _TOKENIZER_PARTS}
    if isinstance(parts["model"], dict) and isinstance(parts["model"].get("merges"), list):
        # "a b" in older files, ["a", "b"] in newer ones
        merges = parts["model"]["merges"]
        parts["model"]["merges"] = [merge if isinstance(merge, str) else " ".join(merge) for merge in merges]
    return parts


def _without_defaults(value: Any) -> Any:
    """Absent, null and false mean the same."""
    if isinstance(value, dict):
        return {
            name: _without_defaults(entry) for name, entry in value.items() if entry is not None and entry is not False
        }
    if isinstance(value, list):
        return [_without_defaults(entry) for entry in value]
    return value


def _matching(paths: Iterable[str], patterns: tuple[str, ...]) -> list[str]:
    return [path for path in paths if _matches(path, patterns)]


def _matches(path: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def _sha256(value: Any) -> str:
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"
