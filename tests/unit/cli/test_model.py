"""The model of a fleet keeps its books, and its queues behave as theory says."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sunfleet_api.scaling import Autoscaling
from sunfleet_cli.sim.costs import Costs
from sunfleet_cli.sim.model import Model
from sunfleet_cli.sim.policies import Ours, Targets
from sunfleet_cli.sim.replay import Outcome, Slo, one_pool, pool_each, replay
from sunfleet_cli.sim.trace import Request, Shape, made

COSTS = Costs(
    source="test", prefill_tokens_per_second=1000, decode_seconds=0.01, kv_tokens=1000, prefill_startup_seconds=30,
    decode_startup_seconds=30,
)  # fmt: skip
ROOMY = COSTS.model_copy(update={"kv_tokens": 100_000})
ZERO = Autoscaling.model_validate({"maxReplicas": 8, "minReplicas": 0, "scaleToZero": {"idleSeconds": 60}})
POOL = Autoscaling.model_validate({"maxReplicas": 8})


def fleet(*requests: Request, pods: int = 1) -> Model:
    model = Model(COSTS, {"decode": ["a", "b"]})
    for group in (*model.prefill.values(), model.pools["decode"].group):
        model.ready_now(group, pods)
    for one in requests:
        model.at(one.at, partial(model.arrive, one))
    return model


def test_a_request_takes_its_prefill_and_then_a_token_at_a_time() -> None:
    model = fleet(Request(1.0, "a", 500, 11))
    model.run_until(100)
    (job,) = model.jobs
    assert job.first_token == pytest.approx(1.5)
    assert job.done == pytest.approx(1.6)


def test_prompts_of_one_task_wait_for_each_other_and_for_no_other_tasks() -> None:
    model = fleet(Request(0, "a", 100, 1), Request(0, "a", 100, 1), Request(0, "b", 100, 1))
    model.run_until(100)
    assert [job.first_token for job in model.jobs] == pytest.approx([0.1, 0.2, 0.1])


def test_without_decode_room_a_request_waits_for_it() -> None:
    model = fleet(Request(0, "a", 500, 400), Request(0, "b", 500, 10))
    model.run_until(1)
    assert model.decode_signals("decode").queued == 510
    model.run_until(100)
    assert model.jobs[1].prefill_begun == pytest.approx(model.jobs[0].done or 0)


def test_at_zero_a_request_is_held_until_a_pod_is_ready() -> None:
    model = Model(COSTS, {"decode": ["a"]})
    model.ready_now(model.pools["decode"].group, 1)
    model.at(0.0, partial(model.arrive, Request(0.0, "a", 100, 1)))
    model.run_until(10)
    assert model.totals["a"].in_flight == 1
    model.scale(model.prefill["a"], 1)
    model.run_until(100)
    assert model.jobs[0].first_token == pytest.approx(40.1)


def test_a_pod_that_drains_finishes_its_work_and_is_paid_until_then() -> None:
    model = fleet(Request(0, "a", 900, 100), pods=2)
    model.run_until(1)
    model.scale(model.pools["decode"].group, 1)
    idle_one_went = model.pools["decode"].group
    assert (idle_one_went.wanted, idle_one_went.draining) == (1, 0)
    model.scale(model.pools["decode"].group, 0)
    assert model.pools["decode"].group.draining == 1
    model.run_until(100)
    assert model.jobs[0].done == pytest.approx(0.9 + 0.99)
    assert [pod.gone for pod in model.pools["decode"].group.gone] == pytest.approx([1.0, 0.9 + 0.99])


def test_a_long_line_goes_back_when_the_last_prefill_pod_has_gone() -> None:
    """All that wait for room are held again, however many they are."""
    crowd = [Request(0.1, "b", 900, 90) for _ in range(3000)]
    model = fleet(Request(0, "b", 900, 90), *crowd)
    model.run_until(0.5)
    model.scale(model.prefill["b"], 0)
    model.run_until(60)
    assert model.totals["b"].in_flight == 3000
    assert not model.pools["decode"].line


def test_what_happens_before_the_warm_up_ends_is_not_judged() -> None:
    traffic = [Request(float(at), "a", 100, 1) for at in range(0, 400, 4)]
    whole, judged = (
        replay(traffic, ROOMY, one_pool(traffic), Targets(2), Slo(), warm_up=warm_up) for warm_up in (0.0, 200.0)
    )
    assert (whole.requests, judged.requests) == (100, 50)
    assert judged.gpu_hours == pytest.approx(2 * 196 / 3600, rel=0.01)
    assert judged.moments[0].at == 210


requests = st.lists(
    st.builds(Request, st.floats(0, 60), st.sampled_from("ab"), st.integers(1, 1500), st.integers(1, 600)), max_size=25
)


@settings(max_examples=30)
@given(requests=requests, counts=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), max_size=6))
def test_whatever_is_scaled_every_request_ends_and_every_book_is_empty(
    requests: list[Request], counts: list[tuple[int, int]]
) -> None:
    model = fleet(*requests)
    for number, (prefill, decode) in enumerate(counts):
        model.run_until(number * 7.0)
        model.scale(model.prefill["a"], prefill)
        model.scale(model.pools["decode"].group, decode)
    for group in (*model.prefill.values(), model.pools["decode"].group):
        model.scale(group, max(1, group.wanted))
    model.run_until(10_000)
    assert len(model.jobs) == len(requests)
    assert all(job.done is not None for job in model.jobs)
    assert all(not total.in_flight and not total.backlog and not total.legs for total in model.totals.values())
    assert all(not pod.reserved and not pod.streams for pod in model.pools["decode"].group.pods)
    assert all(pod.work == 0 for group in model.prefill.values() for pod in group.pods)


def run(traffic: list[Request], *, shared: bool = True, budget: int | None = None) -> Outcome:
    topology = one_pool(traffic) if shared else pool_each(traffic)
    return replay(traffic, ROOMY, topology, Ours(ZERO, POOL, budget), Slo())


def test_the_operators_policy_serves_bursts_goes_to_zero_and_comes_back() -> None:
    quiet = [Request(float(at), "a", 200, 5) for at in range(60)]
    again = [Request(600.0 + at / 8, "a", 200, 5) for at in range(800)]
    outcome = run([*quiet, *again])
    assert outcome.finished == outcome.requests == 860
    counts = [moment.replicas["a"] for moment in outcome.moments]
    assert min(counts[10:40]) == 0
    assert max(counts) > 1


def test_the_budget_holds_at_every_moment_also_while_pods_drain() -> None:
    traffic = made(Shape(tasks=3, rate=8, seconds=400, prompt_tokens=300, output_tokens=40), seed=1)
    outcome = run(traffic, budget=5)
    assert outcome.peak_gpus == 5
    assert max(moment.gpus for moment in outcome.moments) <= 5


def test_one_shared_pool_needs_fewer_gpus_than_a_pool_for_each_model() -> None:
    traffic = made(Shape(tasks=6, rate=2, seconds=300, prompt_tokens=200, output_tokens=40), seed=1)
    assert run(traffic).peak_gpus < run(traffic, shared=False).peak_gpus


def test_a_comparison_policy_follows_its_fixed_targets() -> None:
    traffic = [Request(at / 4, "a", 900, 2) for at in range(400)]
    outcome = replay(traffic, ROOMY, one_pool(traffic), Targets(2, most=4), Slo())
    assert max(moment.replicas["a"] for moment in outcome.moments) == 4
    assert outcome.finished == 400
