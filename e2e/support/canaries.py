"""A task of which a second revision is tried, as tests handle it: its shares, its phases, its pods, its answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sunfleet_api import names
from sunfleet_api.names import ROLE_DECODE, ROLE_PREFILL
from sunfleet_cluster.images.records import recorded
from sunfleet_cluster.state import StateFolder
from sunfleet_fakes.engine.tokens import expected_text, tokenize
from support import fakes
from support.fakes import ApiProxy, condition, is_ready, patch
from support.fleets import Fleet
from support.kubectl import Json, Kubectl, wait_until
from support.load import Asked, Load
from support.prometheus import asking_operator, running_prometheus
from support.served import ANSWER_TOKENS, router_address

TASK, MAX_TOKENS, CLIENTS = "maths", 8, 4
STEP_SECONDS = 120.0
FIRST, SECOND = "hf://acme/maths@main", "hf://acme/maths@v2"
ANALYSIS = {"minRequests": 10, "maxErrorPercent": 5, "maxLatencyIncreasePercent": 1000}


def weights(uri: str) -> Json:
    """A ``prefill`` of whole weights."""
    return {"weights": {"uri": uri, "credentialsSecretRef": {"name": "hub"}}}


@contextmanager
def measured_router(kubectl: Kubectl, proxy: ApiProxy, fake_image: str) -> Iterator[str]:
    """The router's address, while the operator asks a real Prometheus how its requests go."""
    image = recorded(StateFolder.from_env(), "prometheus")
    with (
        running_prometheus(kubectl, image, fake_image, proxy.url) as prometheus,
        asking_operator(kubectl, prometheus.url),
        router_address(kubectl) as url,
    ):
        yield url


@dataclass(frozen=True)
class CanaryFleet(Fleet):
    """A decoder and one task, of which a second revision is tried."""

    proxy: ApiProxy
    url: str

    @property
    def task(self) -> Json:
        return self.get("sunmodel", TASK)

    def traffic(self) -> dict[str, int]:
        """Weight by revision."""
        return {entry["revision"]: entry["weight"] for entry in self.task["status"].get("traffic") or ()}

    def canary(self) -> dict[str, Any]:
        return dict(self.task["status"].get("canary") or {})

    def of(self, revision: str) -> list[Json]:
        """Prefill pods of a revision."""
        pods = self.pods(ROLE_PREFILL, TASK)
        return [pod for pod in pods if pod["metadata"]["labels"][names.LABEL_REVISION] == revision]

    def module(self, revision: str) -> str:
        """What the engines of a revision call their weights."""
        return fakes.identity(self.proxy.engine(self.of(revision)[0]))

    def decoders(self, name: str = fakes.DECODER) -> list[Json]:
        """Pods of a decoder."""
        pods = self.pods(ROLE_DECODE)
        return [pod for pod in pods if pod["metadata"]["labels"][names.LABEL_DECODER] == name]

    def decoder_module(self, name: str = fakes.DECODER) -> str:
        return fakes.identity(self.proxy.engine(self.decoders(name)[0]))

    def try_canary(self, canary: Json, **spec: object) -> None:
        patch(self.kubectl, self.namespace, f"sunmodel/{TASK}", {**spec, "canary": {"analysis": ANALYSIS, **canary}})

    def wait_phase(self, phase: str, seconds: float = STEP_SECONDS) -> dict[str, Any]:
        """The canary's status, once it is in this phase."""

        def seen() -> dict[str, Any] | None:
            found = self.canary()
            return found if found.get("phase") == phase else None

        found: dict[str, Any] = wait_until(f"the canary is {phase}: {self.canary()}", seen, seconds)
        return found

    def steps_taken(self, revision: str) -> list[int]:
        """Its share at every look, until all steps are taken."""
        seen: list[dict[str, int]] = []

        def promotable() -> bool:
            seen.append(self.traffic())
            return self.canary().get("phase") == "Promotable"

        wait_until("all steps are taken", promotable, STEP_SECONDS, 0.5)
        return [found.get(revision, 0) for found in seen]

    def settle(self, spec: Json) -> str:
        """The task without a canary, Ready with this spec; its one revision."""
        patch(self.kubectl, self.namespace, f"sunmodel/{TASK}", {"canary": None, "verification": None, **spec})

        def settled() -> str:
            revision = alone(self.task)
            return revision if len(self.pods(ROLE_PREFILL, TASK)) == 1 and self.of(revision) else ""

        revision: str = wait_until("one revision serves alone", settled, STEP_SECONDS)
        return revision


def right(module: str, decoder: str, prompt: str) -> str:
    """The only right text of a module over a decoder."""
    return expected_text(module, decoder, tokenize(prompt), answer_tokens=ANSWER_TOKENS, max_tokens=MAX_TOKENS)


def wrong(asked: Iterable[Asked], modules: Sequence[str], decoder: str) -> list[str]:
    """Answers that are none of these modules' over the decoder."""
    return wrong_pairs(asked, [(module, decoder) for module in modules])


def wrong_pairs(asked: Iterable[Asked], pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Answers that are of none of these pairs of module and decoder."""
    return [
        f"{one.prompt}: {one.reply.error or one.reply.broken or one.reply.text}"
        for one in asked
        if not one.reply.done or one.reply.text not in {right(*pair, one.prompt) for pair in pairs}
    ]


def alone(task: Json) -> str:
    """The revision (with a pool: the adapter) that has all traffic, if it is what the present spec asks for; else "".

    A task stays Ready with its old revision while the new one's weights are resolved, and then while its pods start.
    """
    status = task["status"]
    served = [entry["revision"] for entry in status.get("traffic") or ()]
    settled = is_ready(task) and condition(task, "WeightsReady").get("status") == "True" and not status.get("canary")
    return served[0] if settled and len(served) == 1 and served[0].endswith(status["updateRevision"]) else ""


def serves_on(load: Load) -> None:
    """Clients are answered whole again, once those that were under way have ended."""
    before = len(load.asked)
    wait_until("clients ask on", lambda: len(load.asked) > before + 3 * CLIENTS, 30)
    broken = [one.reply for one in load.asked[before + CLIENTS :] if not one.reply.done]
    assert broken == [], f"of {len(load.asked) - before - CLIENTS}"
