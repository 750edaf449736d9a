"""A router that serves some namespaces counts for these, and the others are told nothing because of it."""

from __future__ import annotations

import pytest

from sunfleet_optest.objects import decoder, model
from sunfleet_optest.routers import AWAY, LATE, MATHS, StandIns, condition, message
from sunfleet_optest.world import World


@pytest.fixture
def world() -> World:
    made = World()
    made.store.put(decoder())
    made.store.put(model())
    return made


@pytest.fixture
def routers(world: World) -> StandIns:
    return StandIns(world)


@pytest.fixture
async def scoped(world: World, routers: StandIns) -> StandIns:
    """Two routers: "mine" serves the tasks' namespace, "theirs" another."""
    routers.start("mine", namespaces=["team"])
    routers.start("theirs", namespaces=["other"])
    await routers.look()
    await routers.look()
    assert condition(world, "Ready") == ("True", "Ready")
    return routers


async def test_a_namespace_without_its_router_hears_of_it_although_others_run(world: World, scoped: StandIns) -> None:
    scoped.end("mine")
    await scoped.look()
    scoped.queued.clear()
    await scoped.look(seconds=AWAY)
    assert MATHS in scoped.queued
    assert condition(world) == ("False", "NoRouter")
    assert "1 serve others" in message(world)
    scoped.start("mine", namespaces=["team"])
    scoped.queued.clear()
    await scoped.look()
    await scoped.look()
    assert MATHS in scoped.queued
    assert condition(world) == ("True", "RoutesTaken")


async def test_the_router_of_a_namespace_that_is_not_ready_for_a_moment_is_not_missed(
    world: World, scoped: StandIns
) -> None:
    await scoped.look(seconds=600)
    writes = len(world.store.writes)
    scoped.start("mine", ready=False, namespaces=["team"])
    await scoped.look(seconds=15)
    await scoped.look(seconds=25)
    scoped.start("mine", namespaces=["team"])
    await scoped.look()
    assert len(world.store.writes) == writes
    assert condition(world) == ("True", "RoutesTaken")


async def test_a_silent_router_counts_for_the_namespaces_that_it_named_before(world: World, scoped: StandIns) -> None:
    scoped.halt("theirs", None)
    world.store.put(model(uri="pvc://models/adapters/maths2"))
    await world.settle()
    await scoped.look()
    await scoped.look(seconds=LATE)
    assert condition(world) == ("True", "RoutesTaken")
    scoped.end("theirs")
    scoped.start("theirs-2", namespaces=["other"])
    scoped.halt("theirs-2", None)
    world.store.put(model(uri="pvc://models/adapters/maths3"))
    await world.settle()
    await scoped.look()
    await scoped.look(seconds=LATE)
    assert condition(world) == ("False", "RouterUnreachable"), "it may serve any, for all that is known"


async def test_a_router_that_is_replaced_at_rest_is_known_by_its_namespaces(world: World, scoped: StandIns) -> None:
    writes = len(world.store.writes)
    scoped.start("mine-2", namespaces=["team"])
    await scoped.look(seconds=60)
    scoped.end("mine")
    scoped.queued.clear()
    for _ in range(3):
        await scoped.look(seconds=60)
    assert (len(world.store.writes), scoped.queued) == (writes, [])


async def test_a_namespace_whose_router_may_be_an_old_one_is_not_judged(world: World, routers: StandIns) -> None:
    routers.start("mine", namespaces=["team"])
    routers.halt("mine", "old")
    routers.start("theirs", namespaces=["other"])
    await routers.look()
    await routers.look(seconds=AWAY)
    assert condition(world) == ("", "")
    assert condition(world, "Ready") == ("True", "Ready")


async def test_the_first_router_that_serves_others_changes_what_is_said(world: World, routers: StandIns) -> None:
    await routers.look()
    await routers.look(seconds=AWAY)
    assert "no Ready router was found" in message(world)
    routers.start("theirs", namespaces=["other"])
    routers.queued.clear()
    await routers.look()
    assert MATHS in routers.queued
    assert "SUNFLEET_ROUTER_NAMESPACES" in message(world)


async def test_a_router_of_other_namespaces_counts_for_those_alone(world: World, routers: StandIns) -> None:
    routers.start("theirs", namespaces=["other"])
    await routers.look()
    await routers.look(seconds=AWAY)
    assert condition(world) == ("False", "NoRouter")
    assert "SUNFLEET_ROUTER_NAMESPACES" in message(world)
    routers.start("mine", namespaces=["team"])
    await routers.look()
    await routers.look()
    assert condition(world) == ("True", "RoutesTaken")
