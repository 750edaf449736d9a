"""No stream breaks while pods are replaced under load, whichever they are: R3, R5, R7, and a node drain."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from sunfleet_api import names
from sunfleet_fakes.engine.tokens import expected_text, tokenize
from support import fakes
from support.crowd import Crowd
from support.fakes import ApiProxy, patch, uids
from support.fleet import ROUTER_NAMESPACE, wait_ready
from support.kubectl import Json, Kubectl, wait_until
from support.scaled import behaving
from support.served import ServedFleet, router_address

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]
STREAMS = 200
TOKENS = 40
# One token a second, so that every stream is under way for longer than a pod takes to be replaced.
PACE = {"tokens_per_second": 1, "answer_tokens": TOKENS}
DRAIN_SECONDS = 120
ROLLED_SECONDS = 200
TASKS = {"maths": "hf://acme/maths", "code": "hf://acme/code-lora"}
ROUTER = ("--namespace", ROUTER_NAMESPACE, "--selector", "app.kubernetes.io/name=sunfleet-router")


@pytest.fixture(scope="module")
def fleet(
    kubectl: Kubectl, proxy: ApiProxy, make_namespace: Callable[[str], str], fake_image: str
) -> Iterator[ServedFleet]:
    """Two decode pods and a prefill pod for each task, slow from their start on."""
    namespace = make_namespace("streams")
    tasks = [
        fakes.sun_model(task, uri, model_name=f"{namespace}/{task}", drain_seconds=DRAIN_SECONDS)
        for task, uri in TASKS.items()
    ]
    for task in tasks:
        task["spec"]["traffic"] = {"maxInFlight": 2 * STREAMS}
    decoder = fakes.decoder(fake_image, replicas=2, drain_seconds=DRAIN_SECONDS)
    kubectl.apply([behaving(made, PACE) for made in (decoder, *tasks)], namespace)
    wait_ready(kubectl, namespace, 120)
    with router_address(kubectl) as url:
        made = ServedFleet(kubectl, proxy, namespace, url)
        made.learn_identities()
        yield made


def unbroken(fleet: ServedFleet, act: Callable[[], None]) -> None:
    """Every stream that is under way during ``act``, and every question that is asked, is answered whole and right."""
    crowd = Crowd(fleet.url, [fleet.model(task) for task in TASKS], STREAMS, TOKENS)
    replies, asked = crowd.under_way(act)
    assert len(asked) >= crowd.clients, "nobody asked anything meanwhile"
    assert crowd.faults(replies, asked, partial(right, fleet)) == []


def right(fleet: ServedFleet, model: str, prompt: str, limit: int) -> str:
    task = model.rpartition("/")[2]
    module, decoder = fleet.identities[task], fleet.identities["decode"]
    return expected_text(module, decoder, tokenize(prompt), answer_tokens=TOKENS, max_tokens=limit)


def rolled(what: str, pods: Callable[[], list[Json]], old: dict[str, str]) -> None:
    """Wait until none of the old pods is left, not even one that drains."""
    wait_until(f"{what} are replaced", lambda: not old.keys() & uids(pods()).keys(), ROLLED_SECONDS)


def all_pods(fleet: ServedFleet, role: str) -> list[Json]:
    """Also those that drain."""
    selector = f"{names.LABEL_ROLE}={role}"
    return fleet.kubectl.items("pods", "--namespace", fleet.namespace, "--selector", selector)


def annotated() -> Json:
    """A change that makes a new revision and changes nothing."""
    return {"template": {"metadata": {"annotations": {"example.com/rolled": str(time.time())}}}}


def test_decode_pods_that_are_rolled_break_no_stream(fleet: ServedFleet) -> None:
    old = uids(fleet.pods("decode"))

    def roll() -> None:
        patch(fleet.kubectl, fleet.namespace, "shareddecoder/base", annotated())
        rolled("decode pods", lambda: all_pods(fleet, "decode"), old)

    unbroken(fleet, roll)
    assert len(fleet.pods("decode")) == 2


def test_prefill_pods_that_are_rolled_break_no_stream(fleet: ServedFleet) -> None:
    old, decode = uids(fleet.pods("prefill")), uids(fleet.pods("decode"))

    def roll() -> None:
        for task in TASKS:
            patch(fleet.kubectl, fleet.namespace, f"sunmodel/{task}", annotated())
        rolled("prefill pods", lambda: all_pods(fleet, "prefill"), old)

    unbroken(fleet, roll)
    assert uids(fleet.pods("decode")) == decode


def test_routers_that_are_rolled_break_no_stream(fleet: ServedFleet, kubectl: Kubectl) -> None:
    old = uids(kubectl.items("pods", *ROUTER))

    def roll() -> None:
        where = ("deployment/sunfleet-router", "--namespace", ROUTER_NAMESPACE)
        kubectl.run("rollout", "restart", *where)
        kubectl.run("rollout", "status", *where, f"--timeout={ROLLED_SECONDS}s", timeout=ROLLED_SECONDS + 10)
        rolled("routers", lambda: kubectl.items("pods", *ROUTER), old)

    unbroken(fleet, roll)


def test_a_node_drain_takes_one_decode_pod_at_a_time_and_breaks_no_stream(fleet: ServedFleet, kubectl: Kubectl) -> None:
    """The only node is drained of them, so each eviction waits for a place that opens when it is uncordoned."""
    (node,) = {pod["spec"]["nodeName"] for pod in fleet.pods("decode")}
    old = uids(fleet.pods("decode"))
    decoder = f"--pod-selector={names.LABEL_DECODER}=base,{names.LABEL_ROLE}=decode"
    command = kubectl.command("drain", node, decoder, "--delete-emptydir-data", f"--timeout={ROLLED_SECONDS}s")

    def staying() -> list[str]:
        return [name for name in uids(fleet.pods("decode")) if name in old]

    def drain() -> None:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as draining:
            try:
                wait_until("one pod is evicted", lambda: len(staying()) == 1, 60, 0.5)
                # The budget holds the other one while there is no place for the first one's successor; kubectl asks
                # again every five seconds.
                time.sleep(8)
                assert len(staying()) == 1
                kubectl.run("uncordon", node)
                said, _ = draining.communicate(timeout=ROLLED_SECONDS)
                assert draining.returncode == 0, said
                assert "disruption budget" in said
            finally:
                draining.terminate()
                kubectl.run("uncordon", node)
        rolled("decode pods", lambda: all_pods(fleet, "decode"), old)

    unbroken(fleet, drain)
