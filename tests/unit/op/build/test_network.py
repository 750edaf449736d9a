"""NetworkPolicies of engine pods: who gets in, as a policy engine would read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from sunfleet_api import names
from sunfleet_operator.settings import NetworkSettings, Settings
from sunfleet_operator.types import DECODER, MODEL
from sunfleet_optest.objects import decoder, model
from sunfleet_optest.world import DEFAULTS, World

SYSTEM = "sunfleet-system"
ROUTER = {names.LABEL_NAME: "sunfleet-router"}
API, METRICS, SIDE, KV = names.ENGINE_PORT, names.METRICS_PORT, names.SIDE_CHANNEL_PORT, names.KV_PORT_LAST
Labels = Mapping[str, str]


def engine(owner_kind: str, name: str) -> Labels:
    """Labels of an engine pod of this object."""
    decodes = owner_kind == DECODER
    owner = names.LABEL_DECODER if decodes else names.LABEL_MODEL
    role = names.ROLE_DECODE if decodes else names.ROLE_PREFILL
    return {names.LABEL_MANAGED_BY: names.MANAGED_BY, owner: name, names.LABEL_ROLE: role}


async def _world(*manifests: dict[str, Any]) -> World:
    world = World()
    for manifest in manifests or (decoder(), model()):
        world.store.put(manifest)
    await world.settle()
    return world


def reached(policy: Mapping[str, Any], port: int, namespace: str, pod: Labels, **labels: str) -> bool:
    """Whether a pod with these labels, in a namespace with these more, gets through to a port."""
    space = {"kubernetes.io/metadata.name": namespace, **labels}
    return any(
        any(_port(found, port) for found in rule["ports"]) and any(_peer(peer, space, pod) for peer in rule["from"])
        for rule in policy["spec"]["ingress"]
    )


def _port(found: Mapping[str, Any], port: int) -> bool:
    return bool(found["port"] <= port <= found.get("endPort", found["port"]))


def _peer(peer: Mapping[str, Any], space: Labels, pod: Labels) -> bool:
    given = (peer.get("namespaceSelector") or {}), (peer.get("podSelector") or {})
    return all(
        (selector.get("matchLabels") or {}).items() <= labels.items()
        for selector, labels in zip(given, (space, pod), strict=True)
    )


async def test_every_pool_has_a_policy_for_its_pods_of_all_revisions() -> None:
    world = await _world()
    for name, selector in (
        ("base-decode", {names.LABEL_DECODER: "base", names.LABEL_ROLE: names.ROLE_DECODE}),
        ("maths-prefill", {names.LABEL_MODEL: "maths", names.LABEL_ROLE: names.ROLE_PREFILL}),
    ):
        policy = world.store.one("NetworkPolicy", name)
        assert policy["spec"]["podSelector"] == {"matchLabels": selector}
        assert policy["spec"]["policyTypes"] == ["Ingress"]


@pytest.mark.parametrize("name", ["base-decode", "maths-prefill"])
async def test_only_routers_reach_the_api_and_only_prometheus_the_metrics(name: str) -> None:
    policy = (await _world()).store.one("NetworkPolicy", name)
    assert reached(policy, API, SYSTEM, ROUTER)
    assert not reached(policy, API, "team", ROUTER)  # anybody can label a pod of one's own
    assert not reached(policy, API, SYSTEM, {})
    assert not reached(policy, API, "monitoring", {})
    assert reached(policy, METRICS, "monitoring", {})
    assert not reached(policy, METRICS, SYSTEM, ROUTER)
    for port in (SIDE, KV):
        assert not reached(policy, port, SYSTEM, ROUTER)
        assert not reached(policy, port, "monitoring", {})


async def test_golden_prompts_are_asked_of_both_pools_by_the_tasks_own_verifier() -> None:
    world = await _world()
    verifier = {**engine(MODEL, "maths"), names.LABEL_ROLE: names.ROLE_VERIFIER}
    for name in ("base-decode", "maths-prefill"):
        policy = world.store.one("NetworkPolicy", name)
        assert reached(policy, API, "team", verifier)
        assert not reached(policy, API, "elsewhere", verifier)
        assert not reached(policy, KV, "team", verifier)
    another = {**verifier, names.LABEL_MODEL: "code"}
    assert not reached(world.store.one("NetworkPolicy", "maths-prefill"), API, "team", another)


async def test_only_its_decoders_pods_reach_a_tasks_kv() -> None:
    world = await _world(decoder(), decoder("other"), model())
    policy = world.store.one("NetworkPolicy", "maths-prefill")
    for port in (SIDE, names.KV_PORT_FIRST, KV):
        assert reached(policy, port, "team", engine(DECODER, "base"))
        assert not reached(policy, port, "team", engine(DECODER, "other"))
        assert not reached(policy, port, "elsewhere", engine(DECODER, "base"))
        assert not reached(policy, port, "team", engine(MODEL, "code"))
    assert not reached(policy, API, "team", engine(DECODER, "base"))
    assert not reached(policy, KV + 1, "team", engine(DECODER, "base"))


async def test_a_task_that_moves_is_read_by_both_decoders_while_both_serve_it() -> None:
    world = await _world(decoder(), decoder("other"), model())
    world.healthy = lambda live: not live["metadata"]["name"].startswith("maths-") or live in before
    before = list(world.deployments("maths").values())
    world.store.put(model(decoderRef={"name": "other"}))
    await world.settle()
    policy = world.store.one("NetworkPolicy", "maths-prefill")
    assert reached(policy, SIDE, "team", engine(DECODER, "base"))
    assert reached(policy, SIDE, "team", engine(DECODER, "other"))
    world.healthy = lambda _: True
    await world.settle()
    policy = world.store.one("NetworkPolicy", "maths-prefill")
    assert not reached(policy, SIDE, "team", engine(DECODER, "base"))
    assert reached(policy, SIDE, "team", engine(DECODER, "other"))


@pytest.mark.parametrize(
    ("allowed", "who"),
    [
        ({"from": "Same"}, {"team"}),
        ({"from": "All"}, {"team", "gold", "stranger"}),
        ({"from": "Selector", "selector": {"matchLabels": {"tier": "gold"}}}, {"gold"}),
    ],
)
async def test_prefill_pods_of_namespaces_that_may_attach_answer_a_decoder(
    allowed: dict[str, Any], who: set[str]
) -> None:
    world = await _world(decoder(allowedModels={"namespaces": allowed}))
    policy = world.store.one("NetworkPolicy", "base-decode")
    tiers = {"gold": {"tier": "gold"}}
    let_in = {
        space
        for space in ("team", "gold", "stranger")
        if reached(policy, KV, space, engine(MODEL, "any"), **tiers.get(space, {}))
    }
    assert let_in == who
    assert not reached(policy, SIDE, "team", engine(MODEL, "any"))  # nobody reads KV from a decode pod
    assert not reached(policy, KV, "team", engine(DECODER, "base"))


async def test_no_pod_of_a_fleet_runs_before_its_policy_is_there() -> None:
    writes = (await _world()).store.writes
    for owner in ("base-decode", "maths-prefill"):
        policy = next(n for n, write in enumerate(writes) if "NetworkPolicy" in write and owner in write)
        pods = next(n for n, write in enumerate(writes) if f"'Deployment', 'team', '{owner.split('-')[0]}-" in write)
        assert policy < pods


async def test_a_policy_that_somebody_changed_or_deleted_is_put_right() -> None:
    world = await _world()
    policy = world.store.one("NetworkPolicy", "maths-prefill")
    good = policy["spec"]["ingress"]
    policy["spec"]["ingress"] = [{}]  # everybody
    await world.settle()
    assert world.store.one("NetworkPolicy", "maths-prefill")["spec"]["ingress"] == good
    world.store.remove("NetworkPolicy", "team", "maths-prefill")
    await world.settle()
    assert world.store.one("NetworkPolicy", "maths-prefill")["spec"]["ingress"] == good


async def test_policies_that_are_switched_off_go_and_those_of_others_stay() -> None:
    world = await _world()
    strange = world.store.one("NetworkPolicy", "maths-prefill")
    strange["metadata"]["ownerReferences"] = []
    world.defaults = replace(DEFAULTS, visitors=None)
    await world.settle()
    assert [live["metadata"]["name"] for live in world.store.all("NetworkPolicy")] == ["maths-prefill"]


async def test_without_peers_nobody_comes() -> None:
    assert DEFAULTS.visitors is not None
    world = World(replace(DEFAULTS, visitors=replace(DEFAULTS.visitors, prometheus=())))
    world.store.put(decoder())
    await world.settle()
    ports = [found["port"] for rule in world.store.one("NetworkPolicy", "base-decode")["spec"]["ingress"]
             for found in rule["ports"]]  # fmt: skip
    assert ports == [API, names.KV_PORT_FIRST]


def test_by_default_routers_are_those_beside_the_operator_and_prometheus_is_known_by_its_label() -> None:
    visitors = Settings(leader_election_namespace="fleet-ops").visitors
    assert visitors is not None
    (router,), (prometheus,) = visitors.routers, visitors.prometheus
    assert router["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "fleet-ops"}
    assert router["podSelector"]["matchLabels"] == ROUTER
    assert prometheus["podSelector"]["matchLabels"] == {names.LABEL_NAME: "prometheus"}


def test_they_are_set_by_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUNFLEET_OPERATOR_NETWORK__ROUTERS", '[{"podSelector": {}}]')
    visitors = Settings().visitors
    assert visitors is not None
    assert visitors.routers == ({"podSelector": {}},)
    monkeypatch.setenv("SUNFLEET_OPERATOR_NETWORK__POLICIES", "false")
    assert Settings().visitors is None


def test_a_process_that_cannot_know_where_routers_are_makes_none() -> None:
    assert Settings(network=NetworkSettings()).visitors is None


async def test_metrics_have_a_port_of_their_own() -> None:
    world = await _world()
    for owner in ("base", "maths"):
        (live,) = world.deployments(owner).values()
        (container,) = (
            c for c in live["spec"]["template"]["spec"]["containers"] if c["name"] == names.ENGINE_CONTAINER
        )
        assert {"name": "metrics", "containerPort": METRICS, "protocol": "TCP"} in container["ports"]
        assert {"name": "SUNFLEET_WORKER_METRICS_PORT", "value": str(METRICS)} in container["env"]
