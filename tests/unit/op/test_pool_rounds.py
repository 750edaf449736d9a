"""A PrefillPool scales by all its tasks together, and one that nobody asks costs nothing."""

from __future__ import annotations

from typing import Any

import pytest

from sunfleet_api import names
from sunfleet_operator.types import DECODER, MODEL, POOL, Key
from sunfleet_optest.objects import decoder, model, pool, pooled
from sunfleet_optest.rounds import ACTS, Answers, Rounds, rounds
from sunfleet_optest.scaling import AT_ONCE

SPOOL = Key(POOL, "team", "spool")
TASKS = ("maths", "code")
# Of a pod that makes 100 prompt tokens a second.
LEARNT = {"podTokensPerSecond": "100"}


def busy(rate: float) -> dict[str, float]:
    """Prompt tokens a second, in prompts so short that no pod stands idle for chance."""
    tokens = dict.fromkeys(("token_rate", "arriving", "recent"), rate)
    return {"in_flight": 1, "requests": 9, "prompt_rate": rate * 1e4, **tokens}


async def shared(answers: Answers, *more: dict[str, Any], budget: int = 0, **auto: Any) -> Rounds:
    """Two tasks on one pool, whose pods' pace is known."""
    limits: dict[str, Any] = {"gpuBudget": [{"resourceName": "nvidia.com/gpu", "limit": budget}]} if budget else {}
    tasks = [pooled(name) for name in TASKS]
    spool = pool(autoscaling={**ACTS, **auto})
    made = await rounds(spool, *tasks, *more, pool=decoder(autoscaling=ACTS, **limits), source=answers)
    made.world.store.one("PrefillPool", "spool")["status"]["scaling"] = {
        "mode": "BuiltIn", "replicas": 1, "specReplicas": 1, "inputs": LEARNT,
    }  # fmt: skip
    return made


@pytest.fixture
def answers() -> Answers:
    made = Answers()
    for name in TASKS:
        made.task(name)
    made.pool("team/base")
    return made


async def test_the_figures_of_all_tasks_make_one_queue(answers: Answers) -> None:
    made = await shared(answers)
    for name in TASKS:
        answers.task(name, **busy(150))
    await made.round()
    assert made.replicas("spool") == 3  # 300 tokens a second; one task alone would want two pods
    assert made.replicas("base") == 1
    told = made.scaler.told(SPOOL)
    assert told is not None
    assert told.loads == {Key(MODEL, "team", name): 150 for name in TASKS}
    for name in TASKS:
        assert made.scaler.told(Key(MODEL, "team", name)) is None  # a task has no count of its own


async def test_tasks_that_nobody_asks_cost_nothing(answers: Answers) -> None:
    """Thirty adapters more, and a pool that is as large as without them."""
    idle = [pooled(f"idle-{number}") for number in range(30)]
    for live in idle:
        answers.task(live["metadata"]["name"])
    made = await shared(answers, *idle)
    await made.round()
    assert made.replicas("spool") == 1


async def test_a_pool_without_requests_goes_to_zero_and_any_task_brings_it_back(answers: Answers) -> None:
    made = await shared(answers, minReplicas=0, scaleToZero={"idleSeconds": 60})
    answers.task("code", in_flight=1)  # one task's work keeps it for all
    await made.round()
    await made.round(90)
    assert made.replicas("spool") == 1
    answers.task("code")
    await made.round(15)
    await made.round(61)
    assert (made.replicas("spool"), made.replicas("base")) == (0, 1)
    answers.task("maths", in_flight=1)  # held by a router
    await made.round()
    assert made.replicas("spool") == 1


async def test_a_task_that_no_router_knows_yet_adds_nothing_and_one_whose_figures_lack_holds_the_pool(
    answers: Answers,
) -> None:
    made = await shared(answers)
    answers.task("maths", **busy(150))
    del answers.tasks["code"]
    await made.round()
    assert made.replicas("spool") == 2
    answers.tasks = {"maths": answers.tasks["maths"], "code": {"age": 0.0, "in_flight": 3.0}}
    await made.round()
    assert made.replicas("spool") == 2
    assert made.reason("PrefillPool", "spool") == "MetricsMissing"
    answers.tasks = {}
    await made.round()
    assert (made.replicas("spool"), made.reason("PrefillPool", "spool")) == (2, "MetricsMissing")


async def test_a_pool_is_within_the_budget_by_the_weight_of_its_tasks(answers: Answers) -> None:
    alone = model("alone", autoscaling=ACTS)
    made = await shared(answers, alone, budget=9)
    answers.task("alone", **busy(1e6), backlog=9e6, oldest=9)
    for name in TASKS:
        answers.task(name, **busy(1e6), backlog=9e6, oldest=9)
    answers.pool("team/base", reserved=9000)
    for _ in range(8):
        await made.round()
        whole = {name: made.replicas(name) for name in ("base", "spool", "alone")}
        assert sum(whole.values()) <= 9
    assert whole == {"base": 4, "spool": 3, "alone": 1}  # the world holds one more pod of the pool, for adapters


async def test_a_pool_may_be_paused_or_scaled_from_outside_too(answers: Answers) -> None:
    made = await shared(answers)
    live = made.world.store.one("PrefillPool", "spool")
    live["metadata"]["annotations"] = {names.ANNOTATION_SCALING_PAUSED: "true"}
    answers.task("maths", **busy(400))
    await made.round()
    assert (made.replicas("spool"), made.reason("PrefillPool", "spool")) == (1, "Paused")
    made.world.store.put(pool(replicas=1, autoscaling={"mode": "External", "maxReplicas": 9, "behavior": AT_ONCE}))
    await made.round()
    assert made.replicas("spool") == 1
    made.world.store.put(pool(replicas=3, autoscaling={"mode": "External", "maxReplicas": 9, "behavior": AT_ONCE}))
    await made.round()
    assert made.replicas("spool") == 3
    assert made.scaler.told(Key(DECODER, "team", "base")) is not None
