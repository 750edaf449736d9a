"""What of a checkpoint's ``config.json`` decides whether another module can read its KV, in one normal form.

The same model is written differently by different versions of transformers (``rope_theta`` and ``rope_scaling`` at the
top, or both inside ``rope_parameters``) and with or without values that have a default. Equal models must give equal
facts here, and unequal ones different facts: where a value is unknown it stays unknown, and is never guessed equal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

# Fact -> names under which it is found; the first that is present wins.
_REQUIRED: Final = {
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "num_attention_heads": ("num_attention_heads", "n_head"),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "vocab_size": ("vocab_size",),
}
# Taken over when present and not null: latent attention, chunks, layers without rope, soft caps, query scale, ALiBi.
_OPTIONAL: Final = (
    "kv_lora_rank",
    "q_lora_rank",
    "qk_rope_head_dim",
    "qk_nope_head_dim",
    "v_head_dim",
    "attention_chunk_size",
    "no_rope_layers",
    "attn_logit_softcapping",
    "query_pre_attn_scalar",
    "position_embedding_type",
    "alibi",
)
# Reported for the operator (the longest context), but two modules may differ in it.
CONTEXT_LIMIT: Final = "max_position_embeddings"
ADAPTER: Final = "adapter"
# Reported when a checkpoint declares a quantised KV cache. Its scales are weights of that checkpoint alone.
KV_QUANTIZATION: Final = "kv_cache_quantization"
_KV_SCHEMES: Final = ("kv_cache_scheme", "kv_cache_quant_algo")
_LONGEST_LIST: Final = 16  # entries; a pod's report holds at most 4 KiB, and some rope tables have hundreds of numbers


def kv_relevant(config: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a ``config.json`` that KV depends on, small and JSON-ready, for ``ResolverReport.config``.

    Raises :class:`ValueError` naming what is missing when it is no config of a decoder-only Transformer.
    """
    text = _text_part(config)
    facts: dict[str, Any] = {
        "model_type": text.get("model_type") or "",
        "architectures": list(config.get("architectures") or text.get("architectures") or ()),
    }
    for fact, found_under in _REQUIRED.items():
        value = _first(text, found_under)
        if value is None:
            raise ValueError(f"config.json has no {fact}: not a decoder-only Transformer checkpoint?")
        facts[fact] = value
    facts["num_key_value_heads"] = _first(text, ("num_key_value_heads",)) or facts["num_attention_heads"]
    facts["head_dim"] = _first(text, ("head_dim",)) or facts["hidden_size"] // facts["num_attention_heads"]
    facts["sliding_window"] = None if text.get("use_sliding_window") is False else text.get("sliding_window")
    facts["layer_types"] = _layer_types(text.get("layer_types"))
    facts["rope"] = _rope(text)
    facts |= {name: text[name] for name in _OPTIONAL if text.get(name)}
    facts[CONTEXT_LIMIT] = _first(text, (CONTEXT_LIMIT, "n_positions"))
    facts[KV_QUANTIZATION] = _kv_quantization(text.get("quantization_config") or config.get("quantization_config"))
    return {name: _compact(value) for name, value in facts.items() if value is not None}


def adapter_relevant(adapter_config: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a peft ``adapter_config.json``, for ``ResolverReport.config`` of an adapter."""
    facts = {
        "peft_type": adapter_config.get("peft_type") or "",
        "rank": adapter_config.get("r") or 0,
        "bias": adapter_config.get("bias") or "none",
        "use_dora": bool(adapter_config.get("use_dora")),
        "modules_to_save": sorted(adapter_config.get("modules_to_save") or ()),
        "target_modules": _names(adapter_config.get("target_modules")),
        "base_model": adapter_config.get("base_model_name_or_path") or "",
    }
    return {ADAPTER: {name: _compact(value) for name, value in facts.items()}}


def _names(given: Any) -> list[str]:
    """A list of module names, sorted; empty for what peft also takes: a pattern, or nothing."""
    return sorted({str(name) for name in given}) if isinstance(given, list | tuple) else []


def _text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of a multimodal config; a plain config is its own."""
    part = config.get("text_config")
    return part if isinstance(part, Mapping) else config


def _first(config: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((config[key] for key in keys if config.get(key) is not None), None)


def _kv_quantization(given: Any) -> Any:
    """What compressed-tensors and ModelOpt write; the engine follows it where ``kvCacheDtype`` is auto."""
    if not isinstance(given, Mapping):
        return None
    inner = given.get("quantization")
    return _first(given, _KV_SCHEMES) or (_first(inner, _KV_SCHEMES) if isinstance(inner, Mapping) else None)


def _layer_types(types: Sequence[str] | None) -> str | None:
    """Runs such as ``sliding_attention*5,full_attention*1``; all-full is the same as not saying."""
    if not types or set(types) == {"full_attention"}:
        return None
    return ",".join(f"{name}*{len(list(run))}" for name, run in groupby(types))


def _rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """Rope parameters by name, or by kind of layer and name where kinds differ."""
    given = config.get("rope_parameters")
    if isinstance(given, Mapping) and any(isinstance(value, Mapping) for value in given.values()):
        return {kind: _one_rope(config, value) for kind, value in sorted(given.items()) if isinstance(value, Mapping)}
    if isinstance(given, Mapping):
        return _one_rope(config, given)
    whole = _one_rope(config, {"rope_theta": config.get("rope_theta"), **(config.get("rope_scaling") or {})})
    if (local := config.get("rope_local_base_freq")) is None:
        return whole
    return {"full_attention": whole, "sliding_attention": _one_rope(config, {"rope_theta": local})}


def _one_rope(config: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    rope = {name: value for name, value in given.items() if value is not None}
    rope["rope_type"] = rope.pop("rope_type", None) or rope.pop("type", None) or "default"
    rope.pop("type", None)
    rope.setdefault("rope_theta", config.get("rope_theta"))
    rope.setdefault("partial_rotary_factor", _first(config, ("partial_rotary_factor", "rotary_pct")))
    if rope["rope_type"] != "default":  # scaled ropes are relative to a length
        rope.setdefault("original_max_position_embeddings", config.get("original_max_position_embeddings"))
        rope.setdefault(CONTEXT_LIMIT, config.get(CONTEXT_LIMIT))
    return {name: value for name, value in sorted(rope.items()) if value is not None}


def _compact(value: Any) -> Any:
    """Integral floats as ints, so that 10000 equals 10000.0; long lists as a hash of their entries."""
    if isinstance(value, Mapping):
        return {name: _compact(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        entries = [_compact(entry) for entry in value]
        if len(entries) <= _LONGEST_LIST:
            return entries
        return f"{len(entries)} values, sha256:{hashlib.sha256(json.dumps(entries).encode()).hexdigest()[:16]}"
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
