"""Load, and load that moves: the busy task's prefill and the pool follow it, nothing else does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from sunfleet_api.names import ROLE_DECODE, ROLE_PREFILL
from support import scaled
from support.kubectl import wait_until
from support.load import Load, steady
from support.podlog import Moment, PodLog
from support.scaled import BUSY, MOST, OTHER, POOL, ScaledFleet

UP_SECONDS = 90
MOVE_SECONDS = 90
LEARNT_SECONDS = 60  # from what pods do while all of them are busy; queues may ask for them before
# After the move, so that the pool has had more than its window to shrink in, had it been wrong.
QUIET_SECONDS = 5


@pytest.fixture(scope="module")
def load(fleet: ScaledFleet, router_url: str) -> Iterator[Load]:
    """On BUSY, until a test moves it."""
    with steady(router_url, fleet.model(BUSY), clients=scaled.CLIENTS, **scaled.REQUEST) as running:
        yield running


def serves(task: str, count: int) -> Callable[[Moment], bool]:
    return lambda moment: len(moment.ready(ROLE_PREFILL, task)) == count


def learnt(fleet: ScaledFleet, task: str) -> float:
    """Prompt tokens per second of one pod, 0 until there is enough evidence."""
    return float(fleet.get("sunmodel", task)["status"]["scaling"].get("inputs", {}).get("podTokensPerSecond", 0))


def test_load_on_one_task_raises_its_prefill_and_the_pool_but_no_other_task(
    fleet: ScaledFleet, pods: PodLog, load: Load, record: Callable[[str, float], None]
) -> None:
    started, others = time.monotonic(), pods.now.wanted(ROLE_PREFILL, OTHER)
    assert len(others) == 1
    grown = pods.wait("the busy task has its pods", serves(BUSY, MOST), UP_SECONDS)
    record("seconds until the busy task had its pods", grown.at - started)
    grown = pods.wait("the pool has grown", lambda now: len(now.ready(ROLE_DECODE)) == POOL, UP_SECONDS)
    record("seconds until the pool had its pods", grown.at - started)
    assert {tuple(moment.wanted(ROLE_PREFILL, OTHER)) for moment in pods.since(started)} == {tuple(others)}
    assert fleet.scaling("sunmodel", BUSY) == "DecidedFromMetrics"
    wait_until("what a pod does is learnt", lambda: learnt(fleet, BUSY) > 0, LEARNT_SECONDS)
    assert load.asked


def test_skew_that_moves_to_another_task_moves_prefill_pods_and_leaves_the_pool_alone(
    fleet: ScaledFleet, pods: PodLog, load: Load, record: Callable[[str, float], None]
) -> None:
    pods.wait("the busy task has its pods", serves(BUSY, MOST), UP_SECONDS)
    pool = pods.wait("the pool has grown", lambda now: len(now.ready(ROLE_DECODE)) == POOL, UP_SECONDS)
    moved, load.task = time.monotonic(), fleet.model(OTHER)
    pods.wait("the other task has its pods", serves(OTHER, MOST), MOVE_SECONDS)
    record("seconds until the other task had its pods", pods.now.at - moved)
    pods.wait("the first one has one pod", lambda now: len(now.of(ROLE_PREFILL, BUSY)) == 1, MOVE_SECONDS)
    time.sleep(max(QUIET_SECONDS, moved + scaled.POOL_WINDOW_SECONDS + QUIET_SECONDS - time.monotonic()))
    before = sorted(pool.wanted(ROLE_DECODE))
    assert {tuple(sorted(moment.wanted(ROLE_DECODE))) for moment in pods.since(moved)} == {tuple(before)}


def test_no_answer_was_lost_or_wrong_while_pods_came_and_went(fleet: ScaledFleet, pods: PodLog, load: Load) -> None:
    load.stop()
    assert {one.task for one in load.asked} == {fleet.model(BUSY), fleet.model(OTHER)}
    assert not load.failures(fleet.expected)
    assert any(pod.going for moment in pods.moments for pod in moment.of(ROLE_PREFILL, BUSY))


def test_the_budget_was_kept_at_every_moment_and_was_used_up(pods: PodLog) -> None:
    most = max(moment.gpus for moment in pods.since(0))
    assert most <= scaled.BUDGET
    assert most >= scaled.BUDGET - 1  # it was in the way: both tasks and the pool together wanted more
