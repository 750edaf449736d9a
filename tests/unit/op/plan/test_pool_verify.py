"""Golden prompts of tasks that share a PrefillPool, told by statuses, Jobs, and what the pods have loaded."""

from __future__ import annotations

from typing import Any

import pytest

from sunfleet_api import names
from sunfleet_api.worker import VerificationReport
from sunfleet_optest.golden import CHECKED, WRONG
from sunfleet_optest.objects import NEW, decoder, pool, pooled
from sunfleet_optest.world import World

EXACT = VerificationReport(passed=3, total=3)


@pytest.fixture
def world() -> World:
    return World(with_pods=True)


async def _start(world: World, *, replicas: int = 1, **spec: Any) -> None:
    for made in (decoder(), pool(replicas=replicas), pooled(**spec)):
        world.store.put(made)
    await world.settle()


def _condition(world: World, type_: str) -> tuple[str, str]:
    found = world.condition("SunModel", "maths", type_)
    return found.get("status", ""), found.get("reason", "")


def _adapters(world: World) -> list[str]:
    """That requests go to."""
    return [entry["prefill"]["adapter"] for entry in world.status("SunModel", "maths").get("traffic") or ()]


def _loaded(world: World) -> set[str]:
    return set().union(*world.engines.loaded().values())


def _jobs(world: World) -> list[dict[str, Any]]:
    return [job for job in world.store.all("Job") if job["metadata"]["labels"][names.LABEL_ROLE] == "verifier"]


async def test_an_adapter_is_loaded_and_gets_no_traffic_before_it_has_answered_exactly(world: World) -> None:
    world.verify = lambda _: None
    await _start(world, **CHECKED)
    (adapter,) = _loaded(world)
    assert (_adapters(world), _condition(world, "Verified")) == ([], ("Unknown", "Verifying"))
    assert _condition(world, "Ready")[0] == "False"
    assert "golden prompts" in world.condition("SunModel", "maths", "Progressing")["message"]
    world.verify = lambda _: EXACT
    await world.settle()
    assert (_adapters(world), _condition(world, "Verified")) == ([adapter], ("True", "Verified"))
    assert _condition(world, "Ready") == ("True", "Ready")
    assert world.status("SunModel", "maths")["verification"]["passed"] == EXACT.passed
    assert _jobs(world) == []


async def test_the_job_asks_the_pools_pods_for_the_adapter_by_its_name(world: World) -> None:
    world.verify = lambda _: None
    await _start(world, **CHECKED)
    (job,) = _jobs(world)
    arguments = job["spec"]["template"]["spec"]["containers"][0]["args"]
    (pod,) = world.engines.pods()
    assert arguments[arguments.index("--prefill") + 1] == f"http://{pod['status']['podIP']}:8000"
    assert {arguments[arguments.index("--module") + 1]} == _loaded(world)
    assert arguments[:2] == ["verify", "pvc://models/adapters/maths"]


async def test_wrong_answers_keep_the_old_adapter_serving_and_the_pods_let_go_of_the_new_one(world: World) -> None:
    await _start(world, **CHECKED)
    (old,) = _adapters(world)
    world.verify = lambda _: WRONG
    world.store.put(pooled(uri=NEW, **CHECKED))
    await world.settle()
    assert (_adapters(world), _loaded(world)) == ([old], {old})
    assert _condition(world, "Verified") == ("False", "GoldenPromptMismatch")
    message = world.condition("SunModel", "maths", "Verified")["message"]
    status = world.status("SunModel", "maths")
    assert "prompt 1: token 4 is 7, expected 9" in message
    assert f"revision {status['currentRevision']} goes on serving" in message
    assert status["updateRevision"] == status["verification"]["revision"] != status["currentRevision"]
    assert _condition(world, "Ready") == ("False", "GoldenPromptMismatch")
    world.verify = lambda _: EXACT
    world.store.put(pooled(uri="pvc://models/adapters/maths3", **CHECKED))
    await world.settle()
    assert _adapters(world) != [old]
    assert _condition(world, "Ready") == ("True", "Ready")


async def test_with_warn_a_mismatch_is_a_condition_and_no_more(world: World) -> None:
    world.verify = lambda _: WRONG
    await _start(world, verification={"policy": "Warn"})
    assert len(_adapters(world)) == 1
    assert (_condition(world, "Verified")[0], _condition(world, "Ready")[0]) == ("False", "True")


async def test_a_task_of_a_sleeping_pool_is_checked_with_the_pools_first_pod(world: World) -> None:
    world.verify = lambda _: WRONG
    await _start(world, replicas=0, **CHECKED)
    assert len(_adapters(world)) == 1, "its requests have to wake the pool"
    assert _condition(world, "Ready") == ("True", "ScaledToZero")
    world.store.put(pool(replicas=1))
    await world.settle()
    assert _condition(world, "Verified") == ("False", "GoldenPromptMismatch")
    assert _adapters(world) == []


async def test_verifiers_of_every_namespace_that_may_share_the_pool_reach_its_pods(world: World) -> None:
    await _start(world, **CHECKED)
    (policy,) = [live for live in world.store.all("NetworkPolicy") if live["metadata"]["name"] == "spool-pool"]
    api = next(rule for rule in policy["spec"]["ingress"] if rule["ports"][0]["port"] == names.ENGINE_PORT)
    peers = [peer["podSelector"]["matchLabels"] for peer in api["from"]]
    (verifier,) = [labels for labels in peers if labels.get(names.LABEL_ROLE) == names.ROLE_VERIFIER]
    assert names.LABEL_POOL not in verifier
