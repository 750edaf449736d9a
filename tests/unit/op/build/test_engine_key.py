"""The key that engines ask their callers for: in every engine, from a Secret, and known to whoever checks them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sunfleet_api import names
from sunfleet_optest.objects import decoder, model
from sunfleet_optest.world import DEFAULTS, World

SECRET = "fleet-key"
KEYED = replace(DEFAULTS, engine_key=SECRET, fetcher=replace(DEFAULTS.fetcher, engine_key=SECRET))
FROM_SECRET = {"secretKeyRef": {"name": SECRET, "key": "key"}}


async def _settled(world: World, **spec: Any) -> World:
    for manifest in (decoder(), model(**spec)):
        world.store.put(manifest)
    await world.settle()
    return world


def _variables(container: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("valueFrom") for entry in container["env"]}


def _engines(world: World) -> list[dict[str, Any]]:
    pods = [live["spec"]["template"]["spec"] for live in world.store.all("Deployment")]
    return [c for pod in pods for c in pod["containers"] if c["name"] == names.ENGINE_CONTAINER]


async def test_every_engine_gets_it_from_the_secret_of_its_namespace() -> None:
    engines = _engines(await _settled(World(KEYED)))
    assert len(engines) == 2
    assert all(_variables(engine)["SUNFLEET_WORKER_API_KEY"] == FROM_SECRET for engine in engines)


async def test_without_a_secret_nothing_is_asked_for() -> None:
    engines = _engines(await _settled(World()))
    assert not any("SUNFLEET_WORKER_API_KEY" in _variables(engine) for engine in engines)


async def test_setting_it_rolls_pods_that_ask_for_none_and_a_restart_does_not() -> None:
    world = await _settled(World())
    before = set(world.deployments("base")) | set(world.deployments("maths"))
    world.defaults = KEYED
    await world.settle()
    after = set(world.deployments("base")) | set(world.deployments("maths"))
    assert len(after) == 2
    assert not before & after
    assert world.condition("SunModel", "maths", "Ready")["status"] == "True"
    await world.settle()
    assert set(world.deployments("base")) | set(world.deployments("maths")) == after


async def test_whoever_asks_golden_prompts_shows_it() -> None:
    world = World(KEYED, with_pods=True)
    world.verify = lambda _: None
    await _settled(world, verification={"policy": "Enforce"})
    (job,) = (job for job in world.store.all("Job") if job["metadata"]["labels"][names.LABEL_ROLE] == "verifier")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert _variables(container)["SUNFLEET_WEIGHTS_ENGINE_KEY"] == FROM_SECRET


async def test_nobody_but_the_engine_and_its_verifier_gets_it() -> None:
    world = World(KEYED)
    world.store.put(decoder())
    world.store.put(model(uri="hf://acme/maths-adapter@" + "a" * 40))
    await world.reconcile()
    for job in world.store.all("Job"):
        assert SECRET not in str(job)
