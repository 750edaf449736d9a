"""Which count is in effect: three ways to decide it, every switch between them, and nothing moves by itself."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from sunfleet_operator.autoscale.decision import Decision, Why
from sunfleet_operator.told import Told
from sunfleet_operator.types import MODEL, Key
from sunfleet_optest.objects import decoder, model
from sunfleet_optest.world import World

TASK = Key(MODEL, "team", "maths")
BUILT_IN = {"maxReplicas": 9}
EXTERNAL = {"mode": "External", "maxReplicas": 9}
MODES: dict[str, dict[str, Any] | None] = {"Fixed": None, "BuiltIn": BUILT_IN, "External": EXTERNAL}


def told(replicas: int, why: Why = Why.LOAD_ROSE, **more: Any) -> Told:
    return Told(Decision(replicas, why, "because", {"need": str(replicas)}, wished=replicas), **more)


def spec(mode: str, replicas: int, **more: Any) -> dict[str, Any]:
    auto: dict[str, Any] = {"autoscaling": MODES[mode]} if MODES[mode] else {}
    return model(replicas=replicas, **auto, **more)


async def fleet(world: World, task: dict[str, Any]) -> None:
    world.store.put(decoder())
    world.store.put(task)
    await world.settle()


def running(world: World) -> int:
    return sum(int(live["spec"]["replicas"]) for live in world.deployments("maths").values())


def scaling(world: World) -> dict[str, Any]:
    return dict(world.status("SunModel", "maths").get("scaling") or {})


async def change(world: World, task: dict[str, Any]) -> None:
    world.store.put(task)
    await world.settle()


@pytest.fixture
def world() -> World:
    return World()


async def at_three(world: World, mode: str) -> None:
    """A task at three pods, as each way to decide would have brought it there."""
    if mode == "BuiltIn":
        await fleet(world, spec(mode, 1))
        world.told = lambda key: told(3) if key == TASK else None
        await world.settle()
    else:
        await fleet(world, spec(mode, 3))
    assert running(world) == 3


@pytest.mark.parametrize("order", list(permutations(MODES)), ids="-".join)
@pytest.mark.parametrize("git", ["keeps replicas", "drops replicas"])
async def test_no_switch_in_any_order_changes_the_count(world: World, order: tuple[str, ...], git: str) -> None:
    """When a manifest stops naming replicas, the field falls to its default in the same moment."""
    await at_three(world, order[0])
    replicas = world.store.one("SunModel", "maths")["spec"]["replicas"]
    for mode in (*order[1:], *order):
        world.told = lambda _: None  # a scaler that has just begun
        await change(world, spec(mode, replicas if git == "keeps replicas" else 1))
        assert running(world) == 3, f"after the switch to {mode}"


@pytest.mark.parametrize("mode", ["Fixed", "External"])
async def test_after_a_switch_the_next_change_of_replicas_counts(world: World, mode: str) -> None:
    await at_three(world, "BuiltIn")
    world.told = lambda _: None
    await change(world, spec(mode, 1))
    assert running(world) == 3
    held = world.condition("SunModel", "maths", "ScalingReady")
    assert (held["status"], held["reason"]) == ("False", "ReplicasHeld")
    assert "spec.replicas says 1" in held["message"]
    await change(world, spec(mode, 2))
    assert running(world) == 2
    assert world.condition("SunModel", "maths", "ScalingReady").get("reason") in {None, "External"}
    await change(world, spec(mode, 1))
    assert running(world) == 1


async def test_a_count_that_is_given_in_the_same_change_counts(world: World) -> None:
    await at_three(world, "BuiltIn")
    await change(world, spec("Fixed", 5))
    assert running(world) == 5
    assert scaling(world) == {}


async def test_a_fixed_count_is_followed_as_in_a_deployment(world: World) -> None:
    await fleet(world, spec("Fixed", 2))
    for replicas in (5, 1, 0, 2):
        await change(world, spec("Fixed", replicas))
        assert running(world) == replicas
    assert scaling(world) == {}
    assert world.condition("SunModel", "maths", "ScalingReady") == {}


async def test_an_external_scaler_is_followed(world: World) -> None:
    await fleet(world, spec("External", 1))
    await change(world, spec("External", 4))
    assert running(world) == 4
    said = {"mode": "External", "replicas": 4, "specReplicas": 4, "reason": "", "lastDecisionTime": ""}
    assert scaling(world) == said


async def test_a_decision_reaches_the_child_and_the_status_says_why(world: World) -> None:
    await fleet(world, spec("BuiltIn", 1))
    assert world.condition("SunModel", "maths", "ScalingReady")["status"] == "Unknown"
    world.told = lambda key: told(4) if key == TASK else None
    await world.settle()
    assert running(world) == 4
    said = scaling(world)
    assert (said["replicas"], said["desiredReplicas"], said["inputs"]) == (4, 4, {"need": "4"})
    assert said["reason"] == "LoadRose: because"
    assert said["lastDecisionTime"]
    assert world.condition("SunModel", "maths", "ScalingReady")["reason"] == "DecidedFromMetrics"
    events = [live for live in world.store.all("Event") if live["reason"] == "Scaled"]
    assert [event["message"] for event in events] == ["1 -> 4 pods: LoadRose: because (need 4)"]


async def test_figures_that_move_without_a_change_are_not_written(world: World) -> None:
    await at_three(world, "BuiltIn")
    before = len(world.store.writes)
    for number in range(5):
        figures = {"need": f"2.{number}"}
        world.told = lambda _, found=figures: Told(Decision(3, Why.STEADY, "x", found, wished=3))  # type: ignore[misc]
        await world.reconcile()
    assert [write for write in world.store.writes[before:] if "maths" in write] == []


async def test_blindness_is_said_once_and_its_end_too(world: World) -> None:
    await at_three(world, "BuiltIn")
    world.told = lambda _: Told(Decision(3, Why.METRICS_MISSING, "gone", wished=3))  # without any figures
    await world.settle()
    ready = world.condition("SunModel", "maths", "ScalingReady")
    assert (ready["status"], ready["reason"]) == ("False", "MetricsMissing")
    assert scaling(world)["reason"].startswith("MetricsMissing")
    assert world.condition("SunModel", "maths", "Ready")["status"] == "True"
    world.told = lambda _: told(3, Why.STEADY)
    await world.settle()
    assert scaling(world)["reason"].startswith("Steady")


async def test_a_dry_run_decides_and_changes_nothing(world: World) -> None:
    await fleet(world, model(replicas=2, autoscaling={"maxReplicas": 9, "dryRun": True}))
    world.told = lambda _: told(7)
    await world.settle()
    assert running(world) == 2
    assert scaling(world)["desiredReplicas"] == 7
    assert world.condition("SunModel", "maths", "ScalingReady")["reason"] == "DryRun"


async def test_a_second_scaler_is_reported_and_the_decision_stands(world: World) -> None:
    await at_three(world, "BuiltIn")
    world.told = lambda _: told(3, rival="HorizontalPodAutoscaler team/x scales this object too")
    await world.settle()
    ready = world.condition("SunModel", "maths", "ScalingReady")
    assert (ready["status"], ready["reason"]) == ("False", "SecondScaler")
    assert "team/x" in ready["message"]
    assert running(world) == 3


async def test_at_zero_the_task_is_ready_and_says_so(world: World) -> None:
    await fleet(world, model(autoscaling={"maxReplicas": 9, "minReplicas": 0, "scaleToZero": {}}))
    world.told = lambda key: told(0, Why.IDLE) if key == TASK else None
    await world.settle()
    assert running(world) == 0
    ready = world.condition("SunModel", "maths", "Ready")
    assert (ready["status"], ready["reason"]) == ("True", "ScaledToZero")


async def test_a_new_object_starts_within_its_limits(world: World) -> None:
    await fleet(world, model(replicas=1, autoscaling={"maxReplicas": 9, "minReplicas": 2}))
    assert running(world) == 2


async def test_a_restart_keeps_the_count_before_the_first_decision(world: World) -> None:
    await at_three(world, "BuiltIn")
    world.told = lambda _: None
    await world.settle()
    assert running(world) == 3


async def test_the_count_survives_a_lost_status(world: World) -> None:
    await at_three(world, "BuiltIn")
    world.told = lambda _: None
    del world.store.one("SunModel", "maths")["status"]["scaling"]
    await world.settle()
    assert running(world) == 3


# Under a budget ----------------------------------------------------------------------

BUDGET = [{"resourceName": "nvidia.com/gpu", "limit": 4}]


async def test_under_a_budget_nothing_starts_or_grows_before_the_scaler_has_looked(world: World) -> None:
    world.store.put(decoder(gpuBudget=BUDGET, replicas=2))
    world.store.put(spec("Fixed", 2))
    await world.settle()
    assert running(world) == 0
    world.told = lambda key: told(2 if key == TASK else 1, Why.STEADY)
    await world.settle()
    assert running(world) == 2
    world.told = lambda _: None
    await change(world, spec("Fixed", 3))
    assert running(world) == 2
    plan = await world.plan("SunModel", "maths")
    assert plan.requeue_after is not None


async def test_what_the_budget_refuses_is_a_condition(world: World) -> None:
    world.store.put(decoder(gpuBudget=BUDGET))
    world.store.put(spec("Fixed", 9))
    cut = Decision(2, Why.BUDGET, "2 fit into gpuBudget", wished=9)
    world.told = lambda key: (
        Told(cut) if key == TASK else Told(Decision(1, Why.STEADY, "", wished=1), exceeded="9 of 4")
    )
    await world.settle()
    assert running(world) == 2
    assert world.condition("SunModel", "maths", "BudgetExceeded")["message"] == "2 fit into gpuBudget"
    assert world.condition("SharedDecoder", "base", "BudgetExceeded")["message"] == "9 of 4"


@pytest.mark.parametrize(("room", "most"), [(None, 2), (0, 2), (1, 3)])
async def test_a_roll_out_takes_no_more_room_than_it_was_given(world: World, room: int | None, most: int) -> None:
    world.store.put(decoder(gpuBudget=BUDGET))
    world.store.put(spec("Fixed", 2))
    world.told = lambda key: told(2 if key == TASK else 1, Why.STEADY, room=room)
    await world.settle()
    world.healthy = lambda _: False  # the new revision never comes up
    world.store.put(spec("Fixed", 2, template={"metadata": {"labels": {"a": "b"}}}))
    for _ in range(6):
        await world.reconcile()
        world.controllers()
        assert running(world) <= most
    if room is None:
        assert sorted(d["spec"]["replicas"] for d in world.deployments("maths").values()) == [0, 2]
