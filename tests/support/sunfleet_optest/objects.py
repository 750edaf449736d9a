"""Live objects as the API server would store them, with only what a test cares about written out."""

from __future__ import annotations

from typing import Any

from sunfleet_api import names
from sunfleet_api.worker import ResolverReport

Document = dict[str, Any]

CONFIG: Document = {
    "model_type": "llama",
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "hidden_size": 576,
    "vocab_size": 49152,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "max_position_embeddings": 8192,
}
ADAPTER_CONFIG: Document = {"adapter": {"peft_type": "LORA", "rank": 8, "bias": "none", "base_model": "base"}}
BASE_URI = "pvc://models/base"
NEW = "pvc://models/adapters/maths2"  # another adapter of the task


def report(uri: str, *, adapter: bool | None = None, **more: Any) -> ResolverReport:
    """What a resolver says of a URI: an adapter when "adapter" is in its name, else a whole checkpoint."""
    is_adapter = "adapter" in uri if adapter is None else adapter
    return ResolverReport.model_validate(
        {
            "resolved_uri": uri,
            "digest": f"sha256:{uri}",
            "config": ADAPTER_CONFIG if is_adapter else CONFIG,
            "tokenizer_hash": "" if is_adapter else "tokenizer",
            **more,
        }
    )


def decoder(name: str = "base", namespace: str = "team", **spec: Any) -> Document:
    """A SharedDecoder manifest; ``spec`` in camelCase on top of the least that is valid."""
    return _object("SharedDecoder", name, namespace, {"model": {"uri": BASE_URI}, "replicas": 1, **spec})


def model(name: str = "maths", namespace: str = "team", *, uri: str = "", **spec: Any) -> Document:
    """A SunModel manifest for the decoder ``base``, by default with an adapter of its own."""
    uri = uri or f"pvc://models/adapters/{name}"
    source = {"adapter": {"uri": uri}} if "adapter" in uri else {"weights": {"uri": uri}}
    whole = {"decoderRef": {"name": "base"}, "prefill": source, "replicas": 1, **spec}
    return _object("SunModel", name, namespace, whole)


def pool(name: str = "spool", namespace: str = "team", **spec: Any) -> Document:
    """A PrefillPool manifest for the decoder ``base``, whose pods mount the claim ``models``."""
    lora = {"claims": ["models"], **spec.pop("lora", {})}
    whole = {"decoderRef": {"name": "base"}, "model": {"uri": BASE_URI}, "replicas": 1, "lora": lora, **spec}
    return _object("PrefillPool", name, namespace, whole)


def pooled(name: str = "maths", namespace: str = "team", *, uri: str = "", at: str = "", **more: Any) -> Document:
    """A SunModel manifest whose adapter the pods of ``spool`` hold, which like its decoder lies ``at`` a namespace."""
    where = {"namespace": at} if at else {}
    adapter = {"uri": uri or f"pvc://models/adapters/{name}", "poolRef": {"name": "spool", **where}}
    spec = {"decoderRef": {"name": "base", **where}, "prefill": {"adapter": adapter}, "replicas": 1}
    return _object("SunModel", name, namespace, spec | more)


def profile(name: str = "fast", namespace: str = "team", **spec: Any) -> Document:
    """A ServingProfile manifest."""
    return _object("ServingProfile", name, namespace, spec)


def tuning(name: str = "maths", namespace: str = "team", **spec: Any) -> Document:
    """A PrefillTuning manifest: a LoRA against the decoder ``base``, from claim to claim."""
    whole = {
        "decoderRef": {"name": "base"},
        "method": {"lora": {}},
        "dataset": {"uri": "pvc://data/maths/train.jsonl"},
        "output": {"uri": f"pvc://modules/{name}"},
        "nodes": 1,
        "backoffLimit": 3,
        **spec,
    }
    return _object("PrefillTuning", name, namespace, whole)


def _object(kind: str, name: str, namespace: str, spec: Document) -> Document:
    return {
        "apiVersion": names.API_VERSION,
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
