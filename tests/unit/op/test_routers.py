"""RouterSynced: what the status publishes is what routers act on, or the condition says which of them does not."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sunfleet_api.routes import Routes
from sunfleet_api.sun_model import SunModel
from sunfleet_operator.cluster import UnavailableError
from sunfleet_operator.heard import digest_of
from sunfleet_operator.routers import RouterPorts, admin_port
from sunfleet_operator.settings import Settings
from sunfleet_operator.types import DECODER, MODEL, Key
from sunfleet_optest.objects import decoder, model, pool, pooled
from sunfleet_optest.routers import AWAY, LATE, MATHS, SYSTEM, StandIns, condition, message
from sunfleet_optest.world import World
from sunfleet_router.fleet.assemble import assemble
from sunfleet_router.fleet.taken import routes_of


@pytest.fixture
def world() -> World:
    made = World()
    made.store.put(decoder())
    made.store.put(model())
    return made


@pytest.fixture
def routers(world: World) -> StandIns:
    return StandIns(world)


async def test_a_task_is_ready_once_every_router_acts_on_its_traffic(world: World, routers: StandIns) -> None:
    routers.start("one")
    routers.start("two")
    await routers.book.look()
    await world.settle()
    assert condition(world) == ("False", "RoutesPending")
    assert condition(world, "Ready") == ("False", "RoutesPending")
    routers.halt("two", Routes(decoders=frozenset({"team/base"})))  # nothing yet of the task's traffic
    await routers.look()
    assert condition(world) == ("False", "RoutesPending")
    routers.prompt.add("two")
    await routers.look()
    assert condition(world) == ("True", "RoutesTaken")
    assert condition(world, "Ready") == ("True", "Ready")
    assert condition(world, kind=DECODER, name="base") == ("True", "RoutesTaken")
    assert MATHS in routers.queued


async def test_a_pooled_task_is_synced_by_the_adapter_that_routers_ask_for(world: World, routers: StandIns) -> None:
    routers.start("one")
    world.store.put(pool())
    world.store.put(pooled("tools"))
    await routers.book.look()
    await world.settle()
    assert condition(world, name="tools") == ("False", "RoutesPending")
    await routers.look()
    assert condition(world, name="tools") == ("True", "RoutesTaken")


async def test_without_any_router_it_says_so_and_recovers_by_itself(world: World, routers: StandIns) -> None:
    await routers.look()
    assert condition(world) == ("Unknown", "Pending")
    await routers.look(seconds=AWAY)
    assert condition(world) == ("False", "NoRouter")
    assert condition(world, "Ready") == ("False", "NoRouter")
    assert SYSTEM in message(world)
    assert "SUNFLEET_OPERATOR_ROUTERS__ASKED=false" in message(world)
    routers.start("one")
    routers.queued.clear()
    await routers.look()
    await routers.look()
    assert condition(world, "Ready") == ("True", "Ready")
    assert condition(world, "Ready", DECODER, "base") == ("True", "Ready")
    assert {MATHS, Key(DECODER, "team", "base")} <= set(routers.queued)


async def test_a_pod_that_is_not_ready_is_no_router_yet(world: World, routers: StandIns) -> None:
    routers.start("one", ready=False)
    await routers.look()
    await routers.look(seconds=AWAY)
    assert condition(world) == ("False", "NoRouter")
    assert "1 pods" in message(world)


async def test_a_router_that_is_replaced_is_not_missed(world: World, routers: StandIns) -> None:
    routers.start("one")
    await routers.look()
    await routers.look()
    routers.end("one")
    writes = len(world.store.writes)
    await routers.look()
    assert condition(world) == ("True", "RoutesTaken")
    assert len(world.store.writes) == writes
    routers.queued.clear()
    await routers.look(seconds=AWAY)
    assert condition(world) == ("False", "NoRouter")
    assert MATHS in routers.queued


async def _synced(world: World, routers: StandIns, *more: str) -> None:
    for name in ("one", *more):
        routers.start(name)
    await routers.look()
    await routers.look()
    assert condition(world, "Ready") == ("True", "Ready")


async def test_a_change_of_traffic_that_routers_take_at_once_is_no_transition(world: World, routers: StandIns) -> None:
    await _synced(world, routers)
    said: list[tuple[str, str]] = []
    world.store.put(model(uri="pvc://models/adapters/maths2"))
    for _ in range(20):
        await world.reconcile()
        world.controllers()
        said.append(condition(world))
        await routers.book.look()
    assert len(world.status(MODEL, "maths")["traffic"]) == 1
    assert set(said) == {("True", "RoutesTaken")}
    assert condition(world, "Ready") == ("True", "Ready")


async def test_a_router_that_stays_behind_is_named_after_a_while(world: World, routers: StandIns) -> None:
    await _synced(world, routers, "two")
    routers.halt("two")
    world.store.put(model(uri="pvc://models/adapters/maths2"))
    await world.settle()
    await routers.look()
    assert condition(world) == ("True", "RoutesTaken")
    routers.queued.clear()
    await routers.look(seconds=LATE)
    assert MATHS in routers.queued
    assert condition(world) == ("False", "RoutersBehind")
    assert message(world) == "routers act on something older: two; their logs say why"
    assert [event["reason"] for event in world.store.all("Event")].count("RoutersBehind") == 1
    routers.prompt.add("two")
    await routers.look()
    assert condition(world, "Ready") == ("True", "Ready")


async def test_a_router_that_cannot_be_reached_is_named_with_the_remedy(world: World, routers: StandIns) -> None:
    routers.start("one")
    routers.halt("one", None)
    await routers.look()
    await routers.look(seconds=LATE)
    assert condition(world) == ("False", "RouterUnreachable")
    assert "one" in message(world)
    assert "NetworkPolicy" in message(world)


@pytest.mark.parametrize(("seconds", "reason"), [(1, "RoutesPending"), (LATE, "RouterUnreachable")])
async def test_nothing_said_of_a_router_stays_after_a_roll_back_to_an_old_one(
    world: World, routers: StandIns, seconds: float, reason: str
) -> None:
    routers.start("new")
    routers.halt("new", None)
    await routers.look()
    await routers.look(seconds=seconds)
    assert condition(world) == ("False", reason)
    routers.end("new")
    routers.start("old")
    routers.halt("old", "old")
    routers.queued.clear()
    await routers.look()
    assert MATHS in routers.queued
    assert condition(world) == ("", "")
    assert condition(world, "Ready") == ("True", "Ready")


async def test_a_router_is_not_excused_by_what_is_published_meanwhile(world: World, routers: StandIns) -> None:
    await _synced(world, routers, "two")
    routers.halt("two")
    said = []
    for number in range(5):
        world.store.put(model(uri=f"pvc://models/adapters/maths-{number}"))
        await world.settle()
        await routers.look(seconds=8)
        said.append(condition(world)[1])
    assert said == ["RoutesTaken", *["RoutersBehind"] * 4]
    assert _warned(world) == 1
    routers.prompt.add("two")
    await routers.look()
    assert condition(world) == ("True", "RoutesTaken")


async def test_routers_that_take_each_of_many_changes_are_not_late(world: World, routers: StandIns) -> None:
    await _synced(world, routers, "two")
    for number in range(5):
        routers.halt("two")
        world.store.put(model(uri=f"pvc://models/adapters/maths-{number}"))
        await world.settle()
        await routers.look(seconds=4)
        routers.prompt.add("two")
        await routers.look(seconds=4)
        assert condition(world) == ("True", "RoutesTaken")


async def test_a_silent_router_that_speaks_and_is_behind_is_told_as_such(world: World, routers: StandIns) -> None:
    await _synced(world, routers, "two")
    routers.halt("two")
    older = routers.has["two"]
    routers.halt("two", None)
    world.store.put(model(uri="pvc://models/adapters/maths2"))
    await world.settle()
    await routers.look()
    await routers.look(seconds=LATE)
    assert condition(world) == ("False", "RouterUnreachable")
    routers.halt("two", older)
    routers.queued.clear()
    await routers.look()
    assert MATHS in routers.queued
    assert condition(world) == ("False", "RoutersBehind")


async def test_a_new_leader_gives_an_absent_router_its_time(world: World, routers: StandIns) -> None:
    await _synced(world, routers)
    await routers.look(seconds=600)
    routers.start("one", ready=False)
    routers.restart()
    writes = len(world.store.writes)
    await routers.look(seconds=600)
    assert len(world.store.writes) == writes
    await routers.look(seconds=AWAY)
    assert condition(world) == ("False", "NoRouter")


@pytest.mark.parametrize("silent", [True, False])
async def test_a_new_leader_does_not_repeat_an_alarm(world: World, routers: StandIns, silent: bool) -> None:
    await _synced(world, routers, "two")
    routers.halt("two", *([None] if silent else []))
    world.store.put(model(uri="pvc://models/adapters/maths2"))
    await world.settle()
    await routers.look()
    await routers.look(seconds=LATE)
    alarm = condition(world)
    assert alarm == ("False", "RouterUnreachable" if silent else "RoutersBehind")
    routers.restart()
    writes = len(world.store.writes)
    await routers.look()
    await routers.look(seconds=LATE)
    assert condition(world) == alarm
    assert len(world.store.writes) == writes
    routers.has["two"] = Routes()
    routers.prompt.add("two")
    await routers.look()
    assert condition(world) == ("True", "RoutesTaken")


def _warned(world: World) -> int:
    return [event["reason"] for event in world.store.all("Event")].count("RoutersBehind")


async def test_routers_too_old_to_say_what_they_have_are_not_judged(world: World, routers: StandIns) -> None:
    routers.start("old")
    routers.halt("old", "old")
    await routers.look()
    assert condition(world) == ("", "")
    assert condition(world, "Ready") == ("True", "Ready")
    routers.start("new")
    await routers.look()
    await routers.look()
    assert condition(world) == ("True", "RoutesTaken")


async def test_at_rest_nobody_is_asked_and_nothing_is_written(world: World, routers: StandIns) -> None:
    await _synced(world, routers, "two")
    asked, writes = routers.asked, len(world.store.writes)
    for _ in range(5):
        await routers.look(seconds=60)
    assert (routers.asked, len(world.store.writes)) == (asked, writes)


async def test_a_new_leader_asks_once_and_writes_nothing(world: World, routers: StandIns) -> None:
    await _synced(world, routers)
    asked, writes = routers.asked, len(world.store.writes)
    book = routers.restart()
    await world.settle()  # before it has asked anybody
    assert len(world.store.writes) == writes
    await book.look()
    await world.settle()
    await routers.look()
    assert (routers.asked, len(world.store.writes)) == (asked + 1, writes)


async def test_an_api_server_that_does_not_answer_leaves_the_condition_as_it_is(
    world: World, routers: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _synced(world, routers)

    async def away(*_: object, **__: object) -> None:
        raise UnavailableError("GET pods", 0, "no answer")

    with monkeypatch.context() as broken:
        broken.setattr(world.store, "list", away)
        await routers.book.look()
    writes = len(world.store.writes)
    await world.settle()
    assert len(world.store.writes) == writes


async def test_time_in_which_nobody_could_look_is_held_against_no_router(
    world: World, routers: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def outage() -> None:
        async def away(*_: object, **__: object) -> None:
            raise UnavailableError("GET pods", 0, "no answer")

        with monkeypatch.context() as broken:
            broken.setattr(world.store, "list", away)
            for _ in range(3):
                routers.now += 60
                await routers.book.look()

    await _synced(world, routers)
    routers.halt("one")
    world.store.put(model(uri="pvc://models/adapters/maths2"))
    await world.settle()
    await routers.look()
    await outage()
    await world.settle()
    await routers.look()
    assert condition(world) == ("True", "RoutesTaken")
    await routers.look(seconds=LATE)
    assert condition(world) == ("False", "RoutersBehind")
    routers.end("one")
    await routers.look()
    await outage()
    await world.settle()
    await routers.look()
    assert condition(world) == ("False", "RoutersBehind")
    await routers.look(seconds=AWAY)
    assert condition(world) == ("False", "NoRouter")


async def test_what_is_gone_is_not_waited_for(world: World, routers: StandIns) -> None:
    routers.start("one")
    routers.halt("one", None)
    await routers.look()
    for kind, name in ((MODEL, "maths"), (DECODER, "base")):
        world.store.remove(kind, "team", name)
        world.store.objects.pop((kind, "team", name), None)
        await world.reconciler()(Key(kind, "team", name))
    asked = routers.asked
    routers.queued.clear()
    await routers.look(seconds=LATE)
    assert (routers.asked, routers.queued) == (asked, [])


async def test_nothing_is_said_where_nobody_knows_the_routers(world: World) -> None:
    assert Settings().router_lookup is None  # run by hand
    assert Settings(leader_election_namespace="ops", routers={"asked": False}).router_lookup is None
    await world.settle()
    assert condition(world) == ("", "")


def test_routers_are_looked_for_beside_the_operator_unless_it_is_told_otherwise() -> None:
    found = Settings(leader_election_namespace="ops").router_lookup
    assert found is not None
    assert (found.namespace, found.labels["app.kubernetes.io/component"]) == ("ops", "router")
    elsewhere = Settings(leader_election_namespace="ops", routers={"namespace": "edge"}).router_lookup
    assert elsewhere is not None
    assert elsewhere.namespace == "edge"


def test_the_port_is_the_one_that_the_pod_names() -> None:
    ports = [{"name": "http", "containerPort": 80}, {"name": "admin", "containerPort": 9191}]
    assert admin_port({"spec": {"containers": [{"ports": ports}]}}) == 9191


async def test_a_router_that_does_not_answer_and_one_without_the_port_are_told_apart() -> None:
    ports = RouterPorts()
    ready = {"metadata": {"name": "one"}, "status": {"podIP": "127.0.0.1"}}
    spec = {"containers": [{"ports": [{"name": "admin", "containerPort": 1}]}]}
    older = {"metadata": {"name": "older"}, "spec": {"containers": [{}]}, "status": {"podIP": "127.0.0.1"}}
    try:
        assert await ports.ask([{**ready, "spec": spec}, older]) == {"one": None, "older": "old"}
    finally:
        await ports.close()


async def test_router_and_operator_put_a_tasks_traffic_into_the_same_digest(world: World) -> None:
    world.store.put(pool())
    world.store.put(pooled("tools"))
    await world.settle()
    models = list(world.store.all(MODEL))
    stamped = [{**m, "metadata": {**m["metadata"], "creationTimestamp": _NOW}} for m in models]
    said = routes_of(assemble(map(SunModel.parse, stamped), ["team/base"], [], {}), ())
    wanted = {live["metadata"]["name"]: digest_of(live["status"]["traffic"]) for live in models}
    assert all(wanted.values())
    assert said.tasks == wanted


_NOW = datetime(2026, 1, 1, tzinfo=UTC).isoformat()
