"""Observe, plan and apply against a store in memory: where it ends, and that it ends there from anywhere."""

from __future__ import annotations

import copy
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sunfleet_api.worker import VerificationReport
from sunfleet_operator.cluster import UnavailableError
from sunfleet_operator.figures import ByRevision, Figures
from sunfleet_optest.objects import decoder, model
from sunfleet_optest.world import World

Scenario = Callable[[World], Awaitable[None]]


async def create(world: World) -> None:
    world.store.put(model("maths"))
    world.store.put(decoder())
    world.store.put(model("code", uri="hf://acme/code@" + "a" * 40))


async def change_weights(world: World) -> None:
    world.store.put(model("maths", uri="pvc://models/adapters/maths2"))


async def change_engine(world: World) -> None:
    world.store.put(decoder(engine={"image": "worker:2"}))


async def scale(world: World) -> None:
    world.store.put(decoder(replicas=3))
    world.store.put(model("maths", replicas=2))


async def stop_first(world: World) -> None:
    rollout = {"maxSurge": 0, "maxUnavailable": 1}
    world.store.put(model("maths", uri="pvc://models/adapters/maths2", rollout=rollout))


async def scale_to_zero(world: World) -> None:
    world.store.put(model("maths", replicas=0))


async def try_a_canary(world: World) -> None:
    beside = {"prefill": {"adapter": {"uri": "pvc://models/adapters/maths2"}}, "steps": [{"weight": 5}]}
    world.store.put(model("maths", canary=beside))


async def give_it_up(world: World) -> None:
    revision = world.status("SunModel", "maths")["canary"]["revision"]
    world.measured = ByRevision({revision: Figures(requests=500, failed=400)})


async def promote_it(world: World) -> None:
    world.store.put(model("maths", uri="pvc://models/adapters/maths2"))


async def ask_for_golden_prompts(world: World) -> None:
    world.with_pods = True
    world.store.put(model("maths", uri="pvc://models/adapters/maths2", verification={"policy": "Enforce"}))


async def answer_them_wrongly(world: World) -> None:
    world.with_pods = True
    world.verify = lambda _: VerificationReport(passed=0, total=1)
    world.store.put(model("maths", uri="pvc://models/adapters/maths2", verification={"policy": "Enforce"}))


async def delete_all(world: World) -> None:
    world.store.remove("SharedDecoder", "team", "base")
    world.store.remove("SunModel", "team", "maths")
    world.store.remove("SunModel", "team", "code")


SCENARIOS: dict[str, list[Scenario]] = {
    "a fleet appears": [create],
    "a task gets other weights": [create, change_weights],
    "the engine of the whole fleet changes": [create, change_engine],
    "pools grow": [create, scale],
    "the old revision stops first": [create, stop_first],
    "a task goes to zero": [create, scale_to_zero],
    "a canary gets requests": [create, try_a_canary],
    "a canary is given up": [create, try_a_canary, give_it_up],
    "a canary is promoted": [create, try_a_canary, promote_it],
    "golden prompts are answered": [create, ask_for_golden_prompts],
    "golden prompts are answered wrongly": [create, answer_them_wrongly],
    "everything is deleted": [create, delete_all],
}


@pytest.mark.parametrize("steps", SCENARIOS.values(), ids=SCENARIOS)
async def test_reconciling_twice_more_changes_nothing(steps: list[Scenario]) -> None:
    world = World()
    for step in steps:
        await step(world)
        await world.settle()
    before = len(world.store.writes)
    await world.reconcile()
    await world.reconcile()
    assert world.store.writes[before:] == []
    for key in world.served():
        assert (await world.plan(key.kind, key.name, key.namespace)).empty


@pytest.mark.parametrize("steps", SCENARIOS.values(), ids=SCENARIOS)
async def test_being_killed_before_any_write_ends_in_the_same_place(steps: list[Scenario]) -> None:
    expected, total = await _run(steps, killed_before=None)
    assert total > 0
    for number in range(total):
        state, _ = await _run(steps, killed_before=number)
        assert state == expected, f"killed before write {number} of the last step"


async def _run(steps: list[Scenario], *, killed_before: int | None) -> tuple[dict[Any, Any], int]:
    """The end state without what depends on time, and the number of writes of the last step."""
    world = World()
    for step in steps[:-1]:
        await step(world)
        await world.settle()
    await steps[-1](world)
    start = len(world.store.writes)

    def kill(_: str) -> None:
        if len(world.store.writes) - start == killed_before:
            world.store.before_write = lambda _: None
            raise UnavailableError("write", 0, "killed")

    world.store.before_write = kill
    try:
        await world.settle()
    except UnavailableError:
        await world.settle()
    return _timeless(world), len(world.store.writes) - start


def _timeless(world: World) -> dict[Any, Any]:
    state = {}
    for place, live in world.store.objects.items():
        if place[0] in {"Event", "Pod"}:
            continue
        kept = copy.deepcopy(live)
        kept["metadata"] = {
            key: value for key, value in kept["metadata"].items() if key in {"labels", "annotations", "finalizers"}
        }
        for condition in (kept.get("status") or {}).get("conditions") or ():
            condition.pop("lastTransitionTime")
        kept.get("status", {}).pop("observedGeneration", None)
        for told, stamp in (("canary", "startedAt"), ("verification", "time")):
            ((kept.get("status") or {}).get(told) or {}).pop(stamp, None)
        (kept.get("data") or {}).pop("time", None)
        if kept.pop("revision", None) is not None:  # the order of two records may differ
            kept["metadata"].pop("annotations")
        for entry in (kept.get("status") or {}).get("traffic") or ():
            assert re.fullmatch("[0-9a-f]{32}", entry.pop("cacheSalt"))  # depends on the UID
        state[place] = kept
    return state
