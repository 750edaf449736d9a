"""Tasks that share the pods of a PrefillPool: adapters come, move and go, and no pod is touched (R6, S8, N11)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from sunfleet_api import names
from support import fakes
from support.fakes import ApiProxy, condition, is_ready, patch
from support.fleet import ROUTER_NAMESPACE
from support.kubectl import Kubectl, wait_until
from support.load import steady
from support.pooled import MAX_TOKENS, PooledFleet, adapter_source, engine_state, held, pooled_model, prefill_pool, text
from support.reach import reaches
from support.served import router_address
from support.streams import ask, completion

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]
MATHS, CODE = "maths", "code"
ADAPTERS = {MATHS: "hf://acme/maths-lora@main", CODE: "hf://acme/code-lora"}


@pytest.fixture(scope="module")
def fleet(
    kubectl: Kubectl, proxy: ApiProxy, make_namespace: Callable[[str], str], fake_image: str
) -> Iterator[PooledFleet]:
    """In the inconvenient order: tasks, pool, decoder."""
    namespace = make_namespace("pool")
    tasks = [pooled_model(task, uri, model_name=f"{namespace}/{task}") for task, uri in ADAPTERS.items()]
    for manifests in (tasks, [prefill_pool()], [fakes.decoder(fake_image)]):
        kubectl.apply(manifests, namespace)
    with router_address(kubectl) as url:
        made = PooledFleet(kubectl, proxy, namespace, url)
        for task in ADAPTERS:
            made.ready(task)
        yield made


@pytest.mark.parametrize("task", list(ADAPTERS))
def test_each_task_answers_with_its_own_adapter_from_the_same_pods(fleet: PooledFleet, task: str) -> None:
    reply = ask(fleet.url, completion(fleet.model(task), "one two three", stream=True))
    assert (reply.status, reply.done) == (200, True), reply
    assert reply.text == fleet.expected(fleet.adapter(task), "one two three")
    assert len({fleet.expected(fleet.adapter(each), "one two three") for each in ADAPTERS}) == len(ADAPTERS)


def test_a_task_that_comes_and_goes_touches_no_pod(fleet: PooledFleet) -> None:
    before = fleet.starts()
    generations = _generations(fleet)
    more = pooled_model("more", "hf://acme/maths-lora@v2", model_name=fleet.model("more"))
    fleet.kubectl.apply([more], fleet.namespace)
    fleet.ready("more")
    adapter = fleet.adapter("more")
    reply = ask(fleet.url, completion(fleet.model("more"), "hello"))
    assert reply.text == fleet.expected(adapter, "hello")
    fleet.kubectl.delete("sunmodel/more", "--namespace", fleet.namespace)
    wait_until("the pods let go", lambda: not any(adapter in held(pod) for pod in fleet.pods()), 60)
    wait_until("so do the engines", lambda: adapter not in fleet.identities(), 60)
    assert fleet.starts() == before
    assert _generations(fleet) == generations


def _generations(fleet: PooledFleet) -> dict[str, int]:
    items = fleet.kubectl.items("deployments", "--namespace", fleet.namespace)
    return {item["metadata"]["name"]: item["metadata"]["generation"] for item in items}


def test_another_adapter_of_a_task_takes_over_without_a_wrong_or_missing_answer(fleet: PooledFleet) -> None:
    before, decoder, old = fleet.starts(), fleet.decoder(), fleet.adapter(MATHS)
    modules = [fleet.identities()[old]]
    source = adapter_source("hf://acme/maths-lora@v2")
    with steady(fleet.url, fleet.model(MATHS), clients=4, max_tokens=MAX_TOKENS) as load:
        patch(fleet.kubectl, fleet.namespace, f"sunmodel/{MATHS}", {"prefill": source})
        fleet.ready(MATHS)
        modules.append(fleet.identities()[fleet.adapter(MATHS)])
        right = text(modules[1], decoder, "hello")
        wait_until("the new one answers", lambda: _answer(fleet, MATHS) == right, 30, 0.5)
    assert modules[0] != modules[1]
    texts = [(one.reply, [text(module, decoder, one.prompt) for module in modules]) for one in load.asked]
    assert [reply for reply, either in texts if not reply.done or reply.text not in either] == []
    assert fleet.starts() == before


def _answer(fleet: PooledFleet, task: str) -> str:
    return ask(fleet.url, completion(fleet.model(task), "hello", max_tokens=MAX_TOKENS)).text


def test_an_adapter_that_cannot_be_had_is_told_of_its_task_alone(fleet: PooledFleet) -> None:
    none = pooled_model("none", "hf://acme/nothing-lora", model_name=fleet.model("none"))
    fleet.kubectl.apply([none], fleet.namespace)

    def told() -> bool:
        return condition(fleet.get("sunmodel", "none"), "WeightsReady").get("status") == "False"

    wait_until("the task says why", told, 90)
    assert is_ready(fleet.get("sunmodel", CODE))
    fleet.kubectl.delete("sunmodel/none", "--namespace", fleet.namespace)


def test_after_a_restart_of_an_engine_its_adapters_are_loaded_again(fleet: PooledFleet) -> None:
    wanted = {fleet.adapter(task) for task in ADAPTERS}
    before, victim = fleet.starts(), fleet.pods()[0]
    with contextlib.suppress(OSError):  # the answer dies with the engine
        fleet.proxy.engine(victim).request("POST", "/fake/exit")

    def back() -> bool:
        now = {pod["metadata"]["uid"]: pod for pod in fleet.pods()}[victim["metadata"]["uid"]]
        return engine_state(now)["restartCount"] > before[victim["metadata"]["uid"]] and wanted <= held(now)

    wait_until("its adapters are announced of the new start", back, 90)
    for task in ADAPTERS:
        reply = ask(fleet.url, completion(fleet.model(task), "hello"))
        assert reply.text == fleet.expected(fleet.adapter(task), "hello")


def test_only_the_operator_reaches_the_port_that_takes_adapters(fleet: PooledFleet) -> None:
    address = fleet.pods()[0]["status"]["podIP"]

    def reached(client: str) -> bool:
        return reaches(fleet.kubectl, client, ROUTER_NAMESPACE, address, names.ADMIN_PORT)

    wait_until("the operator gets in", lambda: reached("deployment/sunfleet-operator"), 30)
    assert not reached("deployment/sunfleet-router")
