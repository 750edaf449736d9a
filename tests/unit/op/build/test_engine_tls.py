"""TLS of the engines: in every engine and its probes, from a Secret, and trusted by whoever checks them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sunfleet_api import names
from sunfleet_optest.objects import decoder, model, pool
from sunfleet_optest.world import DEFAULTS, World

SECRET = "fleet-tls"
SECURED = replace(DEFAULTS, engine_tls=SECRET, fetcher=replace(DEFAULTS.fetcher, engine_tls=SECRET))


async def _settled(world: World, **spec: Any) -> World:
    for manifest in (decoder(), pool(), model(**spec)):
        world.store.put(manifest)
    await world.settle()
    return world


def _pods(world: World) -> list[dict[str, Any]]:
    return [live["spec"]["template"]["spec"] for live in world.store.all("Deployment")]


def _engine(pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = (container for container in pod["containers"] if container["name"] == names.ENGINE_CONTAINER)
    return dict(found)


def _schemes(engine: dict[str, Any]) -> set[str]:
    probes = (engine[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness"))
    return {probe.get("scheme", "HTTP") for probe in probes}


def _values(container: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in container["env"]}


async def test_engines_of_every_kind_of_object_have_the_secret_and_are_probed_by_tls() -> None:
    pods = _pods(await _settled(World(SECURED)))
    assert len(pods) == 3
    for pod in pods:
        assert {"name": "engine-tls", "secret": {"secretName": SECRET}} in pod["volumes"]
        engine = _engine(pod)
        assert {"name": "engine-tls", "mountPath": names.TLS_PATH, "readOnly": True} in engine["volumeMounts"]
        assert _values(engine)["SUNFLEET_WORKER_TLS_PATH"] == names.TLS_PATH
        assert _schemes(engine) == {"HTTPS"}


async def test_without_a_secret_engines_speak_plain_http() -> None:
    for pod in _pods(await _settled(World())):
        assert "engine-tls" not in {volume["name"] for volume in pod["volumes"]}
        assert "SUNFLEET_WORKER_TLS_PATH" not in _values(_engine(pod))
        assert _schemes(_engine(pod)) == {"HTTP"}


async def test_setting_it_replaces_pods_that_speak_plain_http() -> None:
    world = await _settled(World())
    before = {live["metadata"]["name"] for live in world.store.all("Deployment")}
    world.defaults = SECURED
    await world.settle()
    after = {live["metadata"]["name"] for live in world.store.all("Deployment")}
    assert len(after) == 3
    assert not before & after


async def test_whoever_asks_golden_prompts_trusts_the_authority_and_never_sees_the_key() -> None:
    world = World(SECURED, with_pods=True)
    world.verify = lambda _: None
    await _settled(world, verification={"policy": "Enforce"})
    (job,) = (job for job in world.store.all("Job") if job["metadata"]["labels"][names.LABEL_ROLE] == "verifier")
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    only = {"secretName": SECRET, "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    assert {"name": "engine-tls", "secret": only} in pod["volumes"]
    assert _values(container)["SUNFLEET_WEIGHTS_ENGINE_CA_FILE"] == f"{names.TLS_PATH}/ca.crt"
    arguments = container["args"]
    for option in ("--prefill", "--decode"):
        assert arguments[arguments.index(option) + 1].startswith("https://")
