"""The demo's fleet, up and with everything a suite needs to ask it and to know what is right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from sunfleet_cluster.state import StateFolder
from support.client import Answer, RouterClient
from support.fleet import ROUTER_NAMESPACE, ROUTER_SERVICE, ROUTER_SERVICE_PORT, engine_pods, pod_names, wait_ready
from support.kubectl import Kubectl, wait_until
from support.metrics import PromptTokens, pod_prompt_tokens
from support.reference import Expected, Reference, Scores
from support.samples import EMBEDDED, documents, make_namespace, prefill_uri

NAMESPACE = "demo"  # shared with the demo: an engine takes minutes to start
START_SECONDS = 600
SYNC_SECONDS = 30
METRICS_SECONDS = 15


@dataclass
class RunningFleet:
    """A ready fleet. ``modules``: per task, its prefill module as the reference wants it."""

    kubectl: Kubectl
    client: RouterClient
    reference: Reference
    modules: dict[str, dict[str, str]] = field(default_factory=dict)
    namespace: str = NAMESPACE

    def expected(self, task: str, prompt: Any, **sampling: Any) -> Expected:
        """What the reference answers for a task."""
        return self.reference.answer(self.modules[task], prompt, **sampling)

    def score(self, task: str, prompt: Any, answer: Answer, **sampling: Any) -> Scores:
        """What the reference says to a task's answer."""
        return self.reference.score(self.modules[task], prompt, answer.token_ids, **sampling)

    def pods(self, role: str, task: str = "") -> list[str]:
        """Names of live engine pods."""
        return pod_names(engine_pods(self.kubectl, self.namespace, role, task))

    def prompt_tokens(self, pods: Sequence[str]) -> dict[str, PromptTokens]:
        """Per pod, prompt tokens by source since its start."""
        return {pod: pod_prompt_tokens(self.kubectl, self.namespace, pod) for pod in pods}

    def counted_since(self, before: dict[str, PromptTokens], expected_total: int) -> PromptTokens:
        """Sum over pods since ``before``; engines count a request a moment after its answer."""

        def now() -> PromptTokens:
            seen = self.prompt_tokens(list(before))
            return sum((tokens - before[pod] for pod, tokens in seen.items()), start=PromptTokens())

        with suppress(TimeoutError):  # the caller's comparison says what is missing
            wait_until("prompt tokens counted", lambda: now().total >= expected_total, METRICS_SECONDS)
        return now()


@contextmanager
def running_fleet(kubectl: Kubectl, namespace: str = NAMESPACE) -> Iterator[RunningFleet]:
    """Apply the embedded samples (no change when they stand), wait, and open the router. The fleet stays afterwards."""
    state = StateFolder.from_env()
    make_namespace(kubectl, namespace, state)
    for name in ("decoder.yaml", "models.yaml"):
        kubectl.apply(EMBEDDED / name, namespace)
    wait_ready(kubectl, namespace, START_SECONDS)
    models = documents(EMBEDDED / "models.yaml")
    with (
        kubectl.port_forward(ROUTER_NAMESPACE, ROUTER_SERVICE, ROUTER_SERVICE_PORT) as url,
        Reference(state) as reference,
    ):
        client = RouterClient(url)
        modules = {model["metadata"]["name"]: reference.module(prefill_uri(model)) for model in models}
        wait_until("the router serves the samples", lambda: modules.keys() <= set(client.models()), SYNC_SECONDS)
        try:
            yield RunningFleet(kubectl, client, reference, modules, namespace)
        finally:
            client.close()
