"""A second revision beside the first: its share of real requests, steps on a real Prometheus, the way back (R10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from sunfleet_api import names
from sunfleet_api.names import ROLE_DECODE, ROLE_PREFILL
from sunfleet_cluster.images.records import recorded
from sunfleet_cluster.state import StateFolder
from sunfleet_fakes.engine.tokens import expected_text, tokenize
from support import fakes
from support.fakes import ApiProxy, is_ready, patch, uids
from support.fleets import Fleet
from support.golden import asking, golden_map
from support.kubectl import Json, Kubectl, wait_until
from support.load import Load, steady
from support.prometheus import asking_operator, running_prometheus
from support.served import ANSWER_TOKENS, router_address

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
TASK, GOLDEN, MAX_TOKENS, CLIENTS = "maths", "golden", 8, 4
STEP_SECONDS = 120.0
FIRST, SECOND = "hf://acme/maths@main", "hf://acme/maths@v2"
ANALYSIS = {"minRequests": 10, "maxErrorPercent": 5, "maxLatencyIncreasePercent": 1000}


def weights(uri: str) -> Json:
    return {"weights": {"uri": uri, "credentialsSecretRef": {"name": "hub"}}}


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

    def decoder_module(self) -> str:
        return fakes.identity(self.proxy.engine(self.pods(ROLE_DECODE)[0]))

    def wait_phase(self, phase: str, seconds: float = STEP_SECONDS) -> dict[str, Any]:
        """The canary's status, once it is in this phase."""

        def seen() -> dict[str, Any] | None:
            found = self.canary()
            return found if found.get("phase") == phase else None

        found: dict[str, Any] = wait_until(f"the canary is {phase}: {self.canary()}", seen, seconds)
        return found

    def settle(self, spec: Json) -> str:
        """The task without a canary, Ready with this spec; its one revision."""
        patch(self.kubectl, self.namespace, f"sunmodel/{TASK}", {"canary": None, "verification": None, **spec})

        def settled() -> str:
            found = self.traffic()
            alone = len(found) == 1 and len(self.pods(ROLE_PREFILL, TASK)) == 1
            return next(iter(found)) if alone and is_ready(self.task) and not self.canary() else ""

        revision: str = wait_until("one revision serves alone", settled, STEP_SECONDS)
        return revision


@pytest.fixture(scope="module")
def fleet(
    kubectl: Kubectl, proxy: ApiProxy, make_namespace: Callable[[str], str], fake_image: str
) -> Iterator[CanaryFleet]:
    """Ready, with an operator that asks a real Prometheus."""
    image = recorded(StateFolder.from_env(), "prometheus")
    namespace = make_namespace("canary")
    task = fakes.sun_model(TASK, FIRST, model_name=f"{namespace}/{TASK}")
    with (
        running_prometheus(kubectl, image, fake_image, proxy.url) as prometheus,
        asking_operator(kubectl, prometheus.url),
        router_address(kubectl) as url,
    ):
        made = CanaryFleet(kubectl, namespace, fakes.decoder(fake_image), [task], proxy, url)
        kubectl.apply(made.manifests, namespace)
        made.wait_ready()
        yield made


@pytest.fixture
def load(fleet: CanaryFleet) -> Iterator[Load]:
    """Clients that ask all the time, as the steps need requests to be judged by."""
    with steady(fleet.url, f"{fleet.namespace}/{TASK}", clients=CLIENTS, max_tokens=MAX_TOKENS) as running:
        yield running


def wrong(load: Load, modules: list[str], decoder: str) -> list[str]:
    """Answers that are none of these modules'."""
    return [
        f"{one.prompt}: {one.reply.error or one.reply.broken or one.reply.text}"
        for one in load.asked
        if not one.reply.done
        or one.reply.text
        not in {
            expected_text(module, decoder, tokenize(one.prompt), answer_tokens=ANSWER_TOKENS, max_tokens=MAX_TOKENS)
            for module in modules
        }
    ]


def test_a_canary_with_other_answers_is_rolled_back_before_any_request(fleet: CanaryFleet, load: Load) -> None:
    old = fleet.settle({"prefill": weights(FIRST)})
    module, decoder = fleet.module(old), fleet.decoder_module()
    fleet.kubectl.apply([golden_map(GOLDEN, module, decoder)], fleet.namespace)
    canary = {"prefill": weights(SECOND), "steps": [{"weight": 50}, {"weight": 100}], "analysis": ANALYSIS}
    spec = {"verification": asking(GOLDEN), "canary": canary}
    patch(fleet.kubectl, fleet.namespace, f"sunmodel/{TASK}", spec)
    told = fleet.wait_phase("RolledBack")
    assert "prompt 0: token 0 is" in told["reason"]
    wait_until("its pods are gone", lambda: not fleet.of(told["revision"]), 60)
    assert fleet.traffic() == {old: 100}
    assert wrong(load, [module], decoder) == []


def test_a_canary_takes_its_steps_under_load_and_is_promoted_with_the_pods_that_it_has(
    fleet: CanaryFleet, load: Load
) -> None:
    old = fleet.settle({"prefill": weights(FIRST)})
    steps = [{"weight": 20, "pauseSeconds": 2}, {"weight": 60, "pauseSeconds": 2}, {"weight": 100}]
    canary = {"prefill": weights(SECOND), "steps": steps, "analysis": ANALYSIS}
    patch(fleet.kubectl, fleet.namespace, f"sunmodel/{TASK}", {"canary": canary})
    new = fleet.wait_phase("Progressing")["revision"]
    modules = [fleet.module(old), fleet.module(new)]
    seen: list[dict[str, int]] = []

    def promotable() -> bool:
        seen.append(fleet.traffic())
        return fleet.canary().get("phase") == "Promotable"

    wait_until("all steps are taken", promotable, STEP_SECONDS, 0.5)
    shares = [found.get(new, 0) for found in seen]
    assert shares == sorted(shares), "a step back"
    assert 20 in shares
    assert 60 in shares
    pods = uids(fleet.of(new))
    assert fleet.settle({"prefill": weights(SECOND)}) == new
    assert uids(fleet.of(new)) == pods
    assert wrong(load, modules, fleet.decoder_module()) == []
    assert modules[0] != modules[1]


def test_a_canary_whose_engines_fail_requests_is_rolled_back_and_the_other_revision_serves_on(
    fleet: CanaryFleet, load: Load
) -> None:
    old = fleet.settle({"prefill": weights(FIRST)})
    canary = {"prefill": weights(SECOND), "steps": [{"weight": 50, "pauseSeconds": 600}], "analysis": ANALYSIS}
    patch(fleet.kubectl, fleet.namespace, f"sunmodel/{TASK}", {"canary": canary})
    new = fleet.wait_phase("Progressing")["revision"]
    for engine in fleet.proxy.engines(fleet.of(new)):
        engine.configure(fail_status=500)
    told = fleet.wait_phase("RolledBack")
    assert "failed" in told["reason"]
    wait_until("its pods are gone", lambda: not fleet.of(new), 60)
    assert fleet.traffic() == {old: 100}
    before = len(load.asked)
    wait_until("clients ask on", lambda: len(load.asked) > before + CLIENTS, 30)
    assert all(one.reply.done for one in load.asked[before + CLIENTS :])
