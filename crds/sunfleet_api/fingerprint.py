"""Identities: the KV fingerprint, cache salts, digests and revision hashes. Pure functions over small values.

Every result ends up on live objects, so each is a hash over *canonical* JSON (sorted keys, no spaces) and a change of
what goes in is a change of :data:`FINGERPRINT_VERSION`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from sunfleet_api import names
from sunfleet_api.checkpoint import ADAPTER, CONTEXT_LIMIT, KV_QUANTIZATION, adapter_relevant, kv_relevant
from sunfleet_api.digests import KVFingerprint
from sunfleet_api.worker import ResolverReport

__all__ = [
    "CONNECTOR",
    "FINGERPRINT_VERSION",
    "EngineContract",
    "adapter_relevant",
    "cache_salt",
    "canonical",
    "checkpoint_fingerprint",
    "compare",
    "decoder_digest",
    "digest_of_files",
    "fingerprint",
    "kv_relevant",
    "revision_hash",
]

FINGERPRINT_VERSION: Final = 1
CONNECTOR: Final = "nixl-1"  # raised when the worker's hand-over or KV layout changes
_UNKNOWN: Final = "unknown"
_OWN_SCALES: Final = (
    "has scales of its own for a quantised KV cache, which the other module does not know: "
    "use a checkpoint without them (quantization_config.kv_cache_scheme: null)"
)


class EngineContract(BaseModel):
    """What a decode pool and its attached prefill must have in common, as it runs (no ``None``, nothing "default").

    ``engine`` names the engine build (image reference); ``tensor_parallel_size`` counts because a transfer between
    unequal ones is not proven. ``attention_backend`` is empty where the engine chooses: equal engines choose alike.
    """

    model_config = ConfigDict(frozen=True)
    dtype: str
    kv_cache_dtype: str
    block_size: int
    tensor_parallel_size: int
    engine: str
    connector: str = CONNECTOR
    attention_backend: str = ""

    def facts(self) -> dict[str, Any]:
        """The contract with ``auto`` resolved, and without what is not set."""
        kv_dtype = self.dtype if self.kv_cache_dtype == "auto" else self.kv_cache_dtype
        facts = self.model_dump() | {"kv_cache_dtype": kv_dtype}
        return {name: value for name, value in facts.items() if value != ""}


def fingerprint(config: Mapping[str, Any], tokenizer_hash: str, contract: EngineContract) -> KVFingerprint:
    """The KV fingerprint of pods that run ``contract`` over a checkpoint with these :func:`kv_relevant` facts."""
    facts = {
        "version": FINGERPRINT_VERSION,
        "config": _decisive(config),
        "tokenizer": tokenizer_hash,
        "engine": contract.facts(),
    }
    return KVFingerprint(version=FINGERPRINT_VERSION, digest=_sha256(facts))


def checkpoint_fingerprint(config: Mapping[str, Any], tokenizer_hash: str) -> KVFingerprint:
    """The part of :func:`fingerprint` that a checkpoint decides by itself, before any engine is chosen."""
    facts = {"version": FINGERPRINT_VERSION, "config": _decisive(config), "tokenizer": tokenizer_hash}
    return KVFingerprint(version=FINGERPRINT_VERSION, digest=_sha256(facts))


def compare(decoder: ResolverReport, task: ResolverReport) -> list[str]:
    """Why the decoder could not read the task's KV, one difference per entry; empty when it can.

    Empty means that :func:`fingerprint` is the same for both under one contract (an adapter runs over the decoder's own
    checkpoint). A fact that only one side knows is a difference: what cannot be compared is not trusted.
    """
    if ADAPTER in task.config:
        return list(_adapter_faults(decoder, task))
    if unread := [name for name, report in (("decoder", decoder), ("task", task)) if not report.config]:
        return [f"config: {' and '.join(unread)} unknown"]
    if scaled := [name for name, one in (("decoder", decoder), ("task", task)) if one.config.get(KV_QUANTIZATION)]:
        return [f"{KV_QUANTIZATION}: the checkpoint of the {' and of the '.join(scaled)} {_OWN_SCALES}"]
    ours, theirs = _flat(_decisive(decoder.config)), _flat(_decisive(task.config))
    ours["tokenizer"], theirs["tokenizer"] = decoder.tokenizer_hash or None, task.tokenizer_hash or None
    return [
        f"{name.removeprefix('rope.')}: decoder {_shown(ours.get(name))}, task {_shown(theirs.get(name))}"
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name) != theirs.get(name) or ours.get(name) is None
    ]


def cache_salt(uid: str, prefill_digest: str, decoder_digest: str) -> str:
    """32 hex digits that keep one revision's KV apart from every other's in the engines' prefix caches."""
    return _hex([uid, prefill_digest, decoder_digest])[:32]


def decoder_digest(weights_digest: str, quantized_digest: str = "") -> str:
    """Identity of the decoder's weights as served: of the quantised checkpoint where there is one."""
    return quantized_digest or weights_digest


def digest_of_files(hashes: Mapping[str, str]) -> str:
    """``sha256:<hex>`` of a checkpoint, from relative POSIX path -> lower-case SHA-256 hex of each of its files."""
    return _sha256(dict(hashes))


def revision_hash(kind: str, payload: Mapping[str, Any]) -> str:
    """8 hex digits for a child's name; equal payloads of two kinds get different ones."""
    return _hex({"kind": kind, "payload": payload})[: names.REVISION_HASH_LENGTH]


def canonical(value: Any) -> bytes:
    """JSON with sorted keys and no spaces; :class:`ValueError` for NaN and infinities, which are not JSON."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _hex(value: Any) -> str:
    return hashlib.sha256(canonical(value)).hexdigest()


def _sha256(value: Any) -> str:
    return f"sha256:{_hex(value)}"


def _decisive(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name != CONTEXT_LIMIT}


def _flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _adapter_faults(decoder: ResolverReport, task: ResolverReport) -> Iterator[str]:
    facts = task.config[ADAPTER]
    if facts.get("peft_type") != "LORA":
        yield f"peft_type: {facts.get('peft_type') or _UNKNOWN}, but the engine loads only LORA"
    if facts.get("use_dora"):
        yield "use_dora: true, but the engine loads only plain LoRA"
    if facts.get("bias", "none") != "none":
        yield f"bias: {facts['bias']}, but the engine loads only adapters with bias none"
    if facts.get("modules_to_save"):
        yield f"modules_to_save: {_shown(facts['modules_to_save'])}, but the engine loads only LoRA matrices"
    if task.tokenizer_hash and task.tokenizer_hash != decoder.tokenizer_hash:
        yield f"tokenizer: decoder {_shown(decoder.tokenizer_hash or None)}, task {_shown(task.tokenizer_hash)}"


def _shown(value: Any) -> str:
    if value is None:
        return _UNKNOWN
    return value if isinstance(value, str) else json.dumps(value)
