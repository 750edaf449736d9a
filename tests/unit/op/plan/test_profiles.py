"""What becomes of decoders and tasks that start from ServingProfiles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sunfleet_operator.index import Index
from sunfleet_operator.types import Key
from sunfleet_optest.objects import decoder, model, profile
from sunfleet_optest.world import DEFAULTS, World

SYSTEM = "sunfleet-system"
REFS = [{"name": "fast"}]
NODES: dict[str, Any] = {"spec": {"nodeSelector": {"gpu": "h100"}}}
FOLLOWS = {"profileUpdates": "Automatic"}


@pytest.fixture
def world() -> World:
    return World(replace(DEFAULTS, profile_namespace=SYSTEM))


async def fleet(world: World, *others: dict[str, Any], **spec: Any) -> None:
    for manifest in (*others, decoder(), model(**{"profileRefs": REFS, **spec})):
        world.store.put(manifest)
    await world.settle()


def pod(world: World, owner: str = "maths") -> dict[str, Any]:
    """The pod spec of an object's only Deployment."""
    (live,) = world.deployments(owner).values()
    found: dict[str, Any] = live["spec"]["template"]["spec"]
    return found


def ready(world: World, kind: str = "SunModel", name: str = "maths") -> tuple[str, str]:
    found = world.condition(kind, name, "Ready")
    return found["status"], found["reason"]


async def test_a_task_starts_from_its_profile(world: World) -> None:
    await fleet(world, profile(template=NODES, traffic={"maxInFlight": 7, "timeouts": {"prefillSeconds": 9}}))
    assert pod(world)["nodeSelector"] == {"gpu": "h100"}
    assert world.status("SunModel", "maths")["effectiveTraffic"]["maxInFlight"] == 7
    assert ready(world) == ("True", "Ready")


async def test_what_the_task_says_itself_wins_field_by_field(world: World) -> None:
    traffic = {"timeouts": {"requestSeconds": 30}}
    template = {"spec": {"nodeSelector": {"zone": "b"}}}
    await fleet(
        world,
        profile(template=NODES, traffic={"maxInFlight": 7, "timeouts": {"prefillSeconds": 9, "requestSeconds": 60}}),
        traffic=traffic, template=template,
    )  # fmt: skip
    assert pod(world)["nodeSelector"] == {"gpu": "h100", "zone": "b"}
    limits = world.status("SunModel", "maths")["effectiveTraffic"]
    assert (limits["maxInFlight"], limits["timeouts"]["prefillSeconds"]) == (7, 9)
    assert limits["timeouts"]["requestSeconds"] == 30


async def test_a_later_profile_wins_over_an_earlier_one(world: World) -> None:
    refs = [{"name": "fast"}, {"name": "careful"}]
    first, second = profile(traffic={"maxInFlight": 7}), profile("careful", traffic={"maxInFlight": 3})
    await fleet(world, first, second, profileRefs=refs)
    assert world.status("SunModel", "maths")["effectiveTraffic"]["maxInFlight"] == 3


async def test_a_profile_of_the_operators_namespace_is_for_everybody(world: World) -> None:
    await fleet(world, profile(namespace=SYSTEM, template=NODES))
    assert pod(world)["nodeSelector"] == {"gpu": "h100"}


async def test_a_profile_of_ones_own_namespace_comes_before_the_operators(world: World) -> None:
    own = profile(template={"spec": {"nodeSelector": {"gpu": "mine"}}})
    await fleet(world, profile(namespace=SYSTEM, template=NODES), own)
    assert pod(world)["nodeSelector"] == {"gpu": "mine"}


async def test_a_decoders_profile_adds_engine_arguments_by_name(world: World) -> None:
    argument = {"name": "max-num-seqs", "value": "64"}
    world.store.put(profile(engine={"extraArgs": [argument, {"name": "seed", "value": "1"}]}))
    own = [{"name": "seed", "value": "2"}]
    world.store.put(decoder(profileRefs=REFS, engine={"extraArgs": own}))
    await world.settle()
    variables = {each["name"]: each.get("value") for each in pod(world, "base")["containers"][0]["env"]}
    assert variables["SUNFLEET_WORKER_EXTRA_ARGS"] == (
        '[{"name": "max-num-seqs", "value": "64"}, {"name": "seed", "value": "2"}]'
    )


async def test_the_engine_of_a_profile_is_not_for_tasks(world: World) -> None:
    """It belongs to the decoder, and every task of it runs the same."""
    await fleet(world, profile(engine={"image": "other:1"}))
    assert pod(world)["containers"][0]["image"] == "worker:1"


async def test_an_edit_is_seen_before_it_rolls(world: World) -> None:
    await fleet(world, profile(template=NODES))
    before = world.deployments("maths").keys()
    world.store.put(profile(template={"spec": {"nodeSelector": {"gpu": "b200"}}}))
    await world.settle()
    assert world.deployments("maths").keys() == before
    outdated = world.condition("SunModel", "maths", "ProfilesOutdated")
    assert (outdated["status"], outdated["reason"]) == ("True", "ProfileChanged")
    assert "team/fast" in outdated["message"]
    assert ready(world) == ("True", "Ready")


async def test_the_tasks_own_next_change_takes_the_edit_over(world: World) -> None:
    await fleet(world, profile(template=NODES))
    world.store.put(profile(template={"spec": {"nodeSelector": {"gpu": "b200"}}}))
    await world.settle()
    world.store.put(model(profileRefs=REFS, traffic={"weight": 2}))
    await world.settle()
    assert pod(world)["nodeSelector"] == {"gpu": "b200"}
    assert world.condition("SunModel", "maths", "ProfilesOutdated") == {}


async def test_a_scaler_takes_over_no_edit(world: World) -> None:
    await fleet(world, profile(template=NODES))
    world.store.put(profile(template={"spec": {"nodeSelector": {"gpu": "b200"}}}))
    world.store.put(model(profileRefs=REFS, replicas=3))
    await world.settle()
    assert pod(world)["nodeSelector"] == {"gpu": "h100"}


async def test_whoever_follows_takes_an_edit_over_at_once(world: World) -> None:
    await fleet(world, profile(template=NODES), rollout=FOLLOWS)
    world.store.put(profile(template={"spec": {"nodeSelector": {"gpu": "b200"}}}))
    await world.settle()
    assert pod(world)["nodeSelector"] == {"gpu": "b200"}
    assert world.condition("SunModel", "maths", "ProfilesOutdated") == {}


async def test_a_task_waits_for_its_profile_and_says_so(world: World) -> None:
    await fleet(world)
    assert ready(world) == ("False", "ProfileNotFound")
    assert "ServingProfile fast" in world.condition("SunModel", "maths", "ResolvedRefs")["message"]
    assert not world.deployments("maths")
    world.store.put(profile(template=NODES))
    await world.settle()
    assert ready(world) == ("True", "Ready")


@pytest.mark.parametrize("rollout", [{}, FOLLOWS])
async def test_a_profile_that_goes_changes_nothing_that_runs(world: World, rollout: dict[str, Any]) -> None:
    await fleet(world, profile(template=NODES), rollout=rollout)
    before = world.deployments("maths").keys()
    world.store.remove("ServingProfile", "team", "fast")
    await world.settle()
    assert world.deployments("maths").keys() == before
    assert world.condition("SunModel", "maths", "ProfilesOutdated")["reason"] == "ProfileNotFound"
    assert ready(world) == ("True", "Ready")


async def test_a_task_that_leaves_its_profiles_keeps_nothing_of_them(world: World) -> None:
    await fleet(world, profile(template=NODES, traffic={"maxInFlight": 7}))
    world.store.put(model())
    await world.settle()
    assert "nodeSelector" not in pod(world)
    assert "effectiveTraffic" not in world.status("SunModel", "maths")
    records = [live for live in world.store.all("ControllerRevision") if live["data"]["record"] == "profiles"]
    assert not records


async def test_only_what_is_in_effect_is_remembered(world: World) -> None:
    await fleet(world, profile(template=NODES), rollout=FOLLOWS)
    for gpu in ("b200", "b300"):
        world.store.put(profile(template={"spec": {"nodeSelector": {"gpu": gpu}}}))
        await world.settle()
    (record,) = [live for live in world.store.all("ControllerRevision") if live["data"]["record"] == "profiles"]
    assert record["data"]["preset"] == {"template": {"spec": {"nodeSelector": {"gpu": "b300"}}}}


@pytest.mark.parametrize(
    ("preset", "own", "named"),
    [
        ({"autoscaling": {"minReplicas": 5}}, {"autoscaling": {"maxReplicas": 2}}, "minReplicas"),
        ({"rollout": {"maxSurge": 0, "maxUnavailable": 1}}, {"rollout": {"maxUnavailable": 0}}, "maxSurge"),
        (
            {"rollout": {"drainTimeoutSeconds": 900}},
            {"template": {"spec": {"terminationGracePeriodSeconds": 600}}},
            "terminationGracePeriodSeconds",
        ),
    ],
)
async def test_a_mixture_that_no_manifest_could_hold_is_refused_and_changes_nothing(
    world: World, preset: dict[str, Any], own: dict[str, Any], named: str
) -> None:
    await fleet(world, profile(), **own)
    before = world.deployments("maths").keys()
    world.store.put(profile(**preset))
    world.store.put(model(profileRefs=REFS, traffic={"weight": 2}, **own))
    await world.settle()
    assert ready(world) == ("False", "InvalidSpec")
    assert named in world.condition("SunModel", "maths", "Accepted")["message"]
    assert world.deployments("maths").keys() == before


async def test_a_profile_counts_its_users(world: World) -> None:
    await fleet(world, profile(template=NODES))
    world.store.put(decoder(profileRefs=REFS))
    await world.settle()
    assert world.status("ServingProfile", "fast")["attachedObjects"] == 2
    assert ready(world, "ServingProfile", "fast") == ("True", "Ready")


def test_a_change_of_references_concerns_the_profiles_on_both_sides() -> None:
    index = Index()
    live = {**model(profileRefs=REFS), "status": {}}
    assert index.profiles_changed("SunModel", live, gone=False) == {"fast"}
    assert index.profiles_changed("SunModel", live, gone=False) == set()
    turned = {**model(profileRefs=[{"name": "careful"}]), "status": {}}
    assert index.profiles_changed("SunModel", turned, gone=False) == {"fast", "careful"}
    assert index.profiles_changed("SunModel", turned, gone=True) == {"careful"}


def test_profiles_of_other_namespaces_have_other_users() -> None:
    index = Index()
    index.profiles_changed("SunModel", {**model(profileRefs=REFS), "status": {}}, gone=False)
    own, other = Key("ServingProfile", "team", "fast"), Key("ServingProfile", "elsewhere", "fast")
    assert index.profile_users(own, everybody=False) == {Key("SunModel", "team", "maths")}
    assert index.profile_users(other, everybody=False) == set()
    assert index.profile_users(other, everybody=True) == {Key("SunModel", "team", "maths")}
