"""A PrefillPool of fake engines and tasks that share it: their manifests, what its pods hold, what they answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sunfleet_api import names
from sunfleet_api.pooling import announced
from sunfleet_fakes.engine.tokens import expected_text, tokenize
from support import fakes
from support.fakes import ApiProxy, is_ready
from support.fleet import engine_pods
from support.kubectl import Json, Kubectl, wait_until
from support.served import ANSWER_TOKENS

POOL = "shared"
MAX_TOKENS = 20
READY_SECONDS = 120.0


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


def adapter_source(uri: str) -> Json:
    """A ``prefill`` that the pool's pods hold."""
    return {"adapter": {"uri": uri, "credentialsSecretRef": {"name": "hub"}, "poolRef": {"name": POOL}}}


def pool_pods(pods: Sequence[Json]) -> list[Json]:
    """Those of the pool."""
    return [pod for pod in pods if names.LABEL_POOL in pod["metadata"]["labels"]]


def held(pod: Json) -> frozenset[str]:
    """Adapters that routers may ask of a pod, as it is annotated."""
    return announced(pod["metadata"], pod.get("status", {}))


@dataclass(frozen=True)
class PooledFleet:
    """A decoder, a pool of two pods, and the tasks ``maths`` and ``code`` that share it."""

    kubectl: Kubectl
    proxy: ApiProxy
    namespace: str
    url: str

    def get(self, kind: str, name: str) -> Json:
        return self.kubectl.get(kind, name, "--namespace", self.namespace)

    def pods(self) -> list[Json]:
        """Live pods of the pool; no other pod prefills here."""
        return engine_pods(self.kubectl, self.namespace, names.ROLE_PREFILL)

    def starts(self) -> dict[str, int]:
        """How often each pod's engine has been started again: equal before and after means that nobody was touched."""
        return {pod["metadata"]["uid"]: engine_state(pod)["restartCount"] for pod in self.pods()}

    def ready(self, task: str) -> Json:
        """The task, once it is Ready."""

        def seen() -> Json | None:
            thing = self.get("sunmodel", task)
            return thing if is_ready(thing) else None

        found: Json = wait_until(f"{task} is Ready", seen, READY_SECONDS)
        return found

    def adapter(self, task: str) -> str:
        """Name under which the pool's pods serve the task now."""
        (entry,) = self.get("sunmodel", task)["status"]["traffic"]
        assert entry["prefill"]["pool"] == f"{self.namespace}/{POOL}"
        return str(entry["prefill"]["adapter"])

    def identities(self) -> Mapping[str, str]:
        """What the pods that hold an adapter call its module."""
        found: dict[str, str] = {}
        for engine in self.proxy.engines(self.pods()):
            found |= engine.request("GET", "/fake/config")["adapters"]
        return found

    def decoder(self) -> str:
        (pod,) = engine_pods(self.kubectl, self.namespace, names.ROLE_DECODE)
        return fakes.identity(self.proxy.engine(pod))

    def model(self, task: str) -> str:
        """Name for the OpenAI API."""
        return f"{self.namespace}/{task}"

    def expected(self, adapter: str, prompt: str) -> str:
        """The only right text of an adapter that is loaded."""
        return text(self.identities()[adapter], self.decoder(), prompt)


def text(module: str, decoder: str, prompt: str) -> str:
    """The only right text of a module over a decoder."""
    return expected_text(module, decoder, tokenize(prompt), answer_tokens=ANSWER_TOKENS, max_tokens=MAX_TOKENS)


def engine_state(pod: Json) -> Json:
    """Status of the engine's container."""
    states: list[Json] = pod["status"]["containerStatuses"]
    return next(state for state in states if state["name"] == names.ENGINE_CONTAINER)
