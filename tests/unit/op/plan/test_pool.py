"""PrefillPools and the tasks that share them, told by statuses, pods, and what these were told to load."""

from __future__ import annotations

from typing import Any

import pytest

from sunfleet_api import names
from sunfleet_api.pooling import announced
from sunfleet_api.worker import ResolverReport
from sunfleet_optest.objects import ADAPTER_CONFIG, decoder, model, pool, pooled, report
from sunfleet_optest.world import World

POOL = ("PrefillPool", "spool")


@pytest.fixture
def world() -> World:
    return World()


async def _start(world: World, *tasks: dict[str, Any], **spec: Any) -> None:
    world.store.put(decoder())
    world.store.put(pool(**spec))
    for task in tasks or (pooled(),):
        world.store.put(task)
    await world.settle()


def _condition(world: World, name: str, type_: str = "Ready", namespace: str = "team") -> tuple[str, str]:
    found = world.condition("SunModel", name, type_, namespace)
    return found.get("status", ""), found.get("reason", "")


def _adapter(world: World, name: str = "maths", namespace: str = "team") -> str:
    (entry,) = world.status("SunModel", name, namespace)["traffic"]
    assert entry["prefill"]["pool"] == "team/spool"
    return str(entry["prefill"]["adapter"])


def _announced(world: World) -> dict[str, frozenset[str]]:
    return {pod["metadata"]["name"]: announced(pod["metadata"], pod["status"]) for pod in world.engines.pods()}


async def test_a_task_has_no_pods_and_is_served_by_the_pools(world: World) -> None:
    await _start(world, pooled("maths"), pooled("code"))
    assert [live["metadata"]["ownerReferences"][0]["name"] for live in world.store.all("Deployment")] == [
        "base",
        "spool",
    ]
    for name in ("maths", "code"):
        assert _condition(world, name) == ("True", "Ready")
        assert _adapter(world, name).startswith(f"team.{name}-")
    assert world.engines.loaded() == {"pool-pod-1": {_adapter(world, "maths"), _adapter(world, "code")}}
    assert _announced(world) == world.engines.loaded()
    status = world.status(*POOL)
    assert (status["attachedModels"], status["wantedAdapters"], status["loadedAdapters"]) == (2, 2, 2)
    assert world.condition(*POOL, "Ready")["status"] == "True"
    assert world.condition(*POOL, "AdaptersLoaded")["message"] == "2 of 2 are loaded"


async def test_any_order_of_creation_ends_alike(world: World) -> None:
    world.store.put(pooled())
    await world.settle()
    assert _condition(world, "maths", "ResolvedRefs") == ("False", "DecoderNotFound")
    world.store.put(decoder())
    await world.settle()
    assert _condition(world, "maths", "ResolvedRefs") == ("False", "PoolNotFound")
    world.store.put(pool())
    await world.settle()
    assert _condition(world, "maths") == ("True", "Ready")


async def test_adding_and_removing_a_task_touches_no_deployment_and_restarts_no_pod(world: World) -> None:
    await _start(world, pooled("maths"))
    pods = {pod["metadata"]["uid"] for pod in world.engines.pods()}
    world.store.writes.clear()
    world.store.put(pooled("code"))
    await world.settle()
    assert _condition(world, "code") == ("True", "Ready")
    world.store.remove("SunModel", "team", "code")
    await world.settle()
    assert [write for write in world.store.writes if "Deployment" in write] == []
    assert {pod["metadata"]["uid"] for pod in world.engines.pods()} == pods
    assert world.engines.loaded() == {"pool-pod-1": {_adapter(world)}}


async def test_after_a_restart_of_the_engine_nothing_counts_as_loaded_until_it_is_again(world: World) -> None:
    await _start(world)
    (pod,) = world.engines.pods()
    world.engines.restart(pod["metadata"]["name"])
    assert _announced(world) == {"pool-pod-1": frozenset()}  # what was announced of the start before
    world.engines.told.clear()
    await world.settle()
    assert world.engines.told == [("10.0.0.1", (_adapter(world),))]
    assert _announced(world) == {"pool-pod-1": {_adapter(world)}}
    assert _condition(world, "maths") == ("True", "Ready")


async def test_new_content_gets_another_name_and_the_old_one_serves_until_it_is_loaded(world: World) -> None:
    await _start(world)
    old = _adapter(world)
    (before,) = world.status("SunModel", "maths")["traffic"]
    world.store.put(pooled(uri="pvc://models/adapters/maths2"))
    seen: list[set[str]] = []
    for _ in range(12):
        world.controllers()
        await world.reconcile()
        (entry,) = world.status("SunModel", "maths")["traffic"]
        seen.append({entry["prefill"]["adapter"]})
        assert entry["prefill"]["adapter"] in _announced(world)["pool-pod-1"], (
            "routers are sent where nothing is loaded"
        )
    (after,) = world.status("SunModel", "maths")["traffic"]
    assert seen[0] == {old}
    assert (after["prefill"]["adapter"] != old, after["cacheSalt"] != before["cacheSalt"]) == (True, True)
    assert world.engines.loaded() == {"pool-pod-1": {after["prefill"]["adapter"]}}


async def test_routers_hear_of_it_before_a_pod_lets_go(world: World) -> None:
    await _start(world, pooled("maths"), pooled("code"))
    gone = _adapter(world, "code")
    world.store.remove("SunModel", "team", "code")
    for _ in range(6):
        await world.reconcile()
        if gone not in world.engines.loaded()["pool-pod-1"]:
            break
        told_now = gone in _announced(world)["pool-pod-1"]
    assert told_now is False
    assert gone not in world.engines.loaded()["pool-pod-1"]


async def test_an_adapter_that_cannot_be_had_is_its_tasks_fault_and_mends_itself(world: World) -> None:
    world.engines.broken["team.code-"] = ("AuthenticationFailed", "hf://acme/code: 401")
    await _start(world, pooled("maths"), pooled("code"))
    assert _condition(world, "maths") == ("True", "Ready")
    assert _condition(world, "code", "PrefillReady") == ("False", "AuthenticationFailed")
    assert "401" in world.condition("SunModel", "code", "PrefillReady")["message"]
    assert world.condition(*POOL, "Ready")["status"] == "True"
    assert world.condition(*POOL, "AdaptersLoaded")["reason"] == "AuthenticationFailed"
    world.engines.broken.clear()
    await world.settle()
    assert _condition(world, "code") == ("True", "Ready")


async def test_beyond_its_room_the_oldest_tasks_stay_and_the_others_say_so(world: World) -> None:
    await _start(world, pooled("one"), pooled("two"), pooled("three"), lora={"maxLoadedPerPod": 2})
    assert [_condition(world, name)[1] for name in ("one", "two", "three")] == ["Ready", "Ready", "PoolFull"]
    world.store.put(pool(lora={"maxLoadedPerPod": 2}, replicas=2))
    await world.settle()
    assert _condition(world, "three") == ("True", "Ready")


async def test_many_tasks_share_a_pool(world: World) -> None:
    tasks = [pooled(f"task-{number}", uri=f"pvc://models/adapters/{number}") for number in range(12)]
    await _start(world, *tasks, lora={"maxLoadedPerPod": 8}, replicas=2)
    assert world.status(*POOL)["loadedAdapters"] == 12
    assert {len(held) for held in world.engines.loaded().values()} == {8}
    assert len(list(world.store.all("Deployment"))) == 2


@pytest.mark.parametrize(
    ("facts", "says"),
    [({"rank": 128}, "maxRank 64"), ({"rank": 8, "target_modules": ["q_proj", "lm_head"]}, "lm_head")],
)
async def test_what_the_pods_were_not_started_for_is_refused(world: World, facts: dict[str, Any], says: str) -> None:
    def resolve(uri: str) -> ResolverReport:
        found = {"adapter": {**ADAPTER_CONFIG["adapter"], **facts}}
        return report(uri, config=found) if "adapters" in uri else report(uri)

    world.resolve = resolve
    await _start(world, lora={"targetModules": ["q_proj", "v_proj"]})
    assert _condition(world, "maths", "KVCompatible") == ("False", "AdapterNotSupported")
    assert says in world.condition("SunModel", "maths", "KVCompatible")["message"]


async def test_a_pool_is_for_its_namespace_unless_it_says_otherwise(world: World) -> None:
    task = pooled("maths", "other", uri="hf://acme/adapter", at="team")
    anybody = {"namespaces": {"from": "All"}}
    world.store.put(decoder(allowedModels=anybody))
    world.store.put(pool())
    world.store.put(task)
    await world.settle()
    assert _condition(world, "maths", "ResolvedRefs", "other") == ("False", "NotAllowedByPool")
    world.store.put(pool(allowedModels=anybody))
    await world.settle()
    assert _condition(world, "maths", namespace="other") == ("True", "Ready")
    assert _adapter(world, "maths", "other").startswith("other.maths-")
    world.store.put(pool())
    await world.settle()
    assert world.status("SunModel", "maths", "other")["traffic"] == []
    assert world.engines.loaded() == {"pool-pod-1": set()}


@pytest.mark.parametrize(
    ("task", "spec", "reason"),
    [
        (pooled(uri="pvc://elsewhere/adapters/a"), {}, "VolumeClaimNotFound"),
        (pooled(uri="file:///adapters/a"), {}, "VolumeNotFound"),
        (pooled(), {"decoderRef": {"name": "another"}}, "PoolOfOtherDecoder"),
    ],
)
async def test_what_the_pool_cannot_serve_is_said_of_the_references(
    world: World, task: dict[str, Any], spec: dict[str, Any], reason: str
) -> None:
    await _start(world, task, **spec)
    assert _condition(world, "maths", "ResolvedRefs") == ("False", reason)


async def test_a_roll_out_of_the_pool_fills_the_new_pods_before_the_old_ones_go(world: World) -> None:
    await _start(world, pooled("maths"), pooled("code"))
    world.store.put(pool(lora={"maxRank": 16}))
    adapters = {_adapter(world, "maths"), _adapter(world, "code")}
    for _ in range(14):
        world.controllers()
        served = frozenset().union(*_announced(world).values())
        assert adapters <= served, "an adapter is nowhere loaded"
        await world.reconcile()
    assert len(world.deployments("spool")) == 1
    (pod,) = world.engines.pods()
    assert pod["metadata"]["name"] != "pool-pod-1"
    assert world.engines.loaded() == {pod["metadata"]["name"]: adapters}


async def test_pods_of_its_own_go_once_the_pool_serves_and_come_back_before_it_lets_go(world: World) -> None:
    await _start(world, model())
    assert len(world.deployments("maths")) == 1
    world.store.put(pooled())
    await world.settle()
    assert (_condition(world, "maths"), world.deployments("maths")) == (("True", "Ready"), {})
    adapter = _adapter(world)
    world.store.put(model())
    for _ in range(10):
        world.controllers()
        await world.reconcile()
        (entry, *_) = world.status("SunModel", "maths")["traffic"]
        if entry["prefill"].get("adapter"):
            assert adapter in _announced(world)["pool-pod-1"]
    assert entry["prefill"]["selector"]
    assert world.engines.loaded() == {"pool-pod-1": set()}


async def test_while_there_is_no_pool_to_move_to_a_tasks_own_pods_stay_and_serve(world: World) -> None:
    world.store.put(decoder())
    world.store.put(model())
    await world.settle()
    before = world.deployments("maths")
    world.store.put(pooled())
    await world.settle()
    assert world.deployments("maths").keys() == before.keys()
    (entry,) = world.status("SunModel", "maths")["traffic"]
    assert entry["prefill"]["selector"]


async def test_a_pool_without_pods_is_woken_by_requests_so_its_tasks_are_routable(world: World) -> None:
    await _start(world, replicas=0)
    assert _condition(world, "maths") == ("True", "ScaledToZero")
    assert _adapter(world)
    assert world.condition(*POOL, "Ready")["reason"] == "ScaledToZero"
    world.store.put(pool(replicas=1))
    await world.settle()
    assert _condition(world, "maths") == ("True", "Ready")


async def test_while_paused_nothing_is_loaded(world: World) -> None:
    await _start(world, paused=True)
    assert world.engines.told == []
    assert world.condition(*POOL, "Paused")["status"] == "True"


async def test_the_pods_are_started_for_many_adapters_and_bring_a_downloader(world: World) -> None:
    await _start(world, lora={"maxLoadedPerPod": 5, "credentialsSecretRef": {"name": "hub"}})
    (live,) = world.deployments("spool").values()
    spec = live["spec"]["template"]["spec"]
    engine = next(c for c in spec["containers"] if c["name"] == names.ENGINE_CONTAINER)
    env = {one["name"]: one.get("value") for one in engine["env"]}
    assert env["SUNFLEET_WORKER_ADAPTERS_PATH"] == names.ADAPTERS_PATH
    assert (env["SUNFLEET_WORKER_MAX_LORAS"], env["SUNFLEET_WORKER_MAX_LOADED_LORAS"]) == ("5", "5")
    supplier = next(c for c in spec["initContainers"] if c["name"] == "supply-adapters")
    assert (supplier["restartPolicy"], supplier["envFrom"]) == ("Always", [{"secretRef": {"name": "hub"}}])
    assert "envFrom" not in engine
    assert {"name": "weights", "mountPath": "/weights/claims/models", "readOnly": True} in engine["volumeMounts"]
