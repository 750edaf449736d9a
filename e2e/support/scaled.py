"""A fleet of fake engines that scales by itself: a decode pool and three tasks within one GPU budget.

One pod of a task computes two prompts a second, one at a time; a decode pod has room for three requests of ``REQUEST``
below its target. So eight clients want three pods of the pool and as many of their task as it may have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sunfleet_api.names import ROLE_DECODE, ROLE_PREFILL
from sunfleet_fakes.engine.tokens import expected_text, tokenize
from support import fakes
from support.fakes import ApiProxy
from support.fleet import ROUTER_NAMESPACE
from support.fleets import Fleet
from support.kubectl import Json
from support.podlog import GPU, PodLog

BUDGET: Final = 8  # GPUs: all that the cluster's node pretends to have
MOST: Final = 3  # pods of a task
POOL: Final = 3  # decode pods that CLIENTS need
CLIENTS: Final = 8
BUSY, OTHER, RARE = "maths", "code", "rare"
IDLE_SECONDS: Final = 10  # until RARE goes to zero
WINDOW_SECONDS: Final = 6  # of stabilisation
POOL_WINDOW_SECONDS: Final = 15  # longer than a busy machine may keep eight clients from asking
TIMEOUT_SECONDS: Final = 15  # metricsTimeoutSeconds
FALLBACK: Final = 2  # pods of OTHER without metrics
ANSWER_TOKENS: Final = 10
MAX_TOKENS: Final = 120
REQUEST: Final[Mapping[str, Any]] = {"max_tokens": MAX_TOKENS}
_MAX_MODEL_LEN: Final = 256
DECODE: Final = {"kv_blocks": 32, "tokens_per_second": 10, "answer_tokens": ANSWER_TOKENS}
PREFILL: Final = {"max_num_seqs": 1, "prefill_seconds": 0.5, "answer_tokens": ANSWER_TOKENS}


@dataclass(frozen=True)
class ScaledFleet(Fleet):
    """The same as tests handle it; ``models`` are BUSY, OTHER and RARE."""

    proxy: ApiProxy
    _identities: dict[str, str] = field(default_factory=dict)

    def measured(self, pods: PodLog) -> set[tuple[str, str]]:
        """Namespace and name of all that Prometheus should scrape: routers, operator, and engines that are Ready."""
        system = self.kubectl.items("pods", "--namespace", ROUTER_NAMESPACE)
        ours = {pod["metadata"]["name"] for pod in system if "deletionTimestamp" not in pod["metadata"]}
        engines = {pod.name for pod in pods.now.pods.values() if pod.ready and not pod.going}
        return {(ROUTER_NAMESPACE, name) for name in ours} | {(self.namespace, name) for name in engines}

    def model(self, task: str) -> str:
        """Name for the OpenAI API."""
        return f"{self.namespace}/{task}"

    def expected(self, model: str, prompt: str, *, answer_tokens: int = ANSWER_TOKENS) -> str:
        """The only right text; the task needs a live pod when it is asked for the first time."""
        task = model.rpartition("/")[2]
        module, pool = self._identity(ROLE_PREFILL, task), self._identity(ROLE_DECODE, "")
        return expected_text(module, pool, tokenize(prompt), answer_tokens=answer_tokens, max_tokens=MAX_TOKENS)

    def _identity(self, role: str, task: str) -> str:
        """What the role's engines call their module."""
        if task not in self._identities:
            self._identities[task] = fakes.identity(self.proxy.engine(self.pods(role, task)[0]))
        return self._identities[task]

    def count(self, kind: str, name: str) -> int:
        """The count in effect, as the object's status tells it."""
        return int(self.get(kind, name)["status"]["scaling"]["replicas"])

    def scaling(self, kind: str, name: str) -> str:
        """Reason of its ScalingReady."""
        return str(fakes.condition(self.get(kind, name), "ScalingReady").get("reason", ""))


def decoder(image: str) -> Json:
    made = fakes.decoder(image, drain_seconds=60)
    made["spec"]["engine"] |= {"maxModelLen": _MAX_MODEL_LEN}
    made["spec"]["gpuBudget"] = [{"resourceName": GPU, "limit": BUDGET}]
    return _scaling(made, {"maxReplicas": BUDGET, "behavior": _down(POOL_WINDOW_SECONDS)}, DECODE)


def models(namespace: str) -> list[Json]:
    """BUSY and OTHER keep a pod, RARE goes to zero; RARE is an adapter."""
    often: Json = {"maxReplicas": MOST, "targets": {"queueSeconds": 1}}
    seldom: Json = {"minReplicas": 0, "maxReplicas": 1, "scaleToZero": {"idleSeconds": IDLE_SECONDS}}
    each = {
        BUSY: ("hf://acme/maths@main", often),
        OTHER: ("hf://acme/code@main", {**often, "fallback": FALLBACK}),
        RARE: ("hf://acme/code-lora", seldom),
    }
    return [
        _scaling(fakes.sun_model(name, uri, model_name=f"{namespace}/{name}", drain_seconds=60), rules, PREFILL)
        for name, (uri, rules) in each.items()
    ]


def _down(window: int) -> Json:
    return {"scaleDown": {"stabilizationWindowSeconds": window}}


def _scaling(made: Json, rules: Json, behaviour: Json) -> Json:
    """The object with these rules, on a GPU, behaving like this from its pods' start on."""
    spec = made["spec"]
    del spec["replicas"]
    spec["autoscaling"] = {"behavior": _down(WINDOW_SECONDS), "metricsTimeoutSeconds": TIMEOUT_SECONDS, **rules}
    engine = spec["template"]["spec"]["containers"][0]
    limits = {**engine["resources"]["limits"], GPU: 1}
    engine["resources"] = {**engine["resources"], "limits": limits}
    return behaving(made, behaviour)


def behaving(made: Json, behaviour: Mapping[str, Any]) -> Json:
    """The object with pods that behave like this from their start on."""
    engine = made["spec"]["template"]["spec"]["containers"][0]
    engine["env"] = [{"name": "SUNFLEET_FAKE_BEHAVIOUR", "value": json.dumps(behaviour)}]
    return made
