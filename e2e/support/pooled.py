"""A PrefillPool of fake engines and tasks that share it: their manifests, and what its pods hold."""

from __future__ import annotations

from collections.abc import Sequence

from sunfleet_api import names
from sunfleet_api.pooling import announced
from support import fakes
from support.kubectl import Json

POOL = "shared"


def prefill_pool(*, replicas: int = 2, copies: int = 2) -> Json:
    """Pods over the decoder's base, small as those of every fake engine."""
    secret = {"name": "hub"}
    decoder = fakes.decoder("")["spec"]
    spec: Json = {
        "decoderRef": {"name": fakes.DECODER},
        "model": {"uri": "hf://acme/base", "credentialsSecretRef": secret},
        "lora": {"maxRank": 8, "maxLoadedPerPod": 8, "copies": copies, "credentialsSecretRef": secret},
        "replicas": replicas,
        "rollout": {"drainTimeoutSeconds": 30},
        "template": decoder["template"],
    }
    return {"apiVersion": fakes.API, "kind": "PrefillPool", "metadata": {"name": POOL}, "spec": spec}


def pooled_model(name: str, uri: str, *, model_name: str, **spec: object) -> Json:
    """A SunModel whose adapter the pool's pods hold; ``spec``: more of its fields."""
    made = fakes.sun_model(name, uri, model_name=model_name)
    for field in ("replicas", "template"):
        del made["spec"][field]
    made["spec"]["prefill"]["adapter"]["poolRef"] = {"name": POOL}
    made["spec"] |= spec
    return made


def pool_pods(pods: Sequence[Json]) -> list[Json]:
    """Those of the pool."""
    return [pod for pod in pods if names.LABEL_POOL in pod["metadata"]["labels"]]


def held(pod: Json) -> frozenset[str]:
    """Adapters that routers may ask of a pod, as it is annotated."""
    return announced(pod["metadata"], pod.get("status", {}))
