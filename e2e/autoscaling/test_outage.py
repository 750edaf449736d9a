"""Prometheus goes away under load: what is there stays, whatever happens to the load."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from sunfleet_api.names import ROLE_DECODE, ROLE_PREFILL
from support import scaled
from support.load import steady
from support.podlog import PodLog
from support.prometheus import Prometheus
from support.scaled import BUSY, FALLBACK, MOST, OTHER, POOL, ScaledFleet

UP_SECONDS = 90
HOLD_SECONDS = 5
IDLE_SECONDS = scaled.POOL_WINDOW_SECONDS + 4  # in which a scaler that took missing for zero would have scaled in
BACK_SECONDS = 60
TASKS = (BUSY, OTHER)


@pytest.fixture(autouse=True)
def _prometheus_comes_back(prometheus: Prometheus) -> object:
    yield
    prometheus.start()


def raised(pods: PodLog) -> None:
    """Wait until the load has all the pods that it wants."""
    pods.wait(
        "the load has its pods",
        lambda now: len(now.ready(ROLE_PREFILL, BUSY)) == MOST and len(now.ready(ROLE_DECODE)) == POOL,
        UP_SECONDS,
    )


def kept(pods: PodLog, start: float, before: set[str]) -> None:
    """No pod of those has been told to go."""
    for moment in pods.since(start):
        assert before <= {pod.name for pod in moment.pods.values() if not pod.going}


def test_nothing_scales_in_while_prometheus_is_away(
    fleet: ScaledFleet, pods: PodLog, prometheus: Prometheus, router_url: str
) -> None:
    with steady(router_url, fleet.model(BUSY), clients=scaled.CLIENTS, **scaled.REQUEST) as load:
        raised(pods)
        stopped, before = time.monotonic(), set(pods.now.wanted(ROLE_PREFILL, BUSY) + pods.now.wanted(ROLE_DECODE))
        prometheus.stop()
        fleet.wait_for(
            "says so", "sunmodel", BUSY, lambda _: fleet.scaling("sunmodel", BUSY) == "MetricsMissing", 30
        )  # fmt: skip
        time.sleep(HOLD_SECONDS)
    assert not load.failures(fleet.expected)
    time.sleep(IDLE_SECONDS)  # nobody asks any more
    kept(pods, stopped, before)
    prometheus.start()
    pods.wait("with metrics it scales in", lambda now: len(now.of(ROLE_PREFILL, BUSY)) == 1, BACK_SECONDS)
    assert fleet.scaling("sunmodel", BUSY) == "DecidedFromMetrics"
    assert max(moment.gpus for moment in pods.since(0)) <= scaled.BUDGET


@pytest.mark.long
def test_the_fallback_acts_after_its_timeout_and_only_where_there_is_one(
    fleet: ScaledFleet, pods: PodLog, prometheus: Prometheus, record: Callable[[str, float], None]
) -> None:
    pods.wait(
        "every task has one pod", lambda now: all(len(now.of(ROLE_PREFILL, one)) == 1 for one in TASKS), UP_SECONDS
    )
    stopped, before = time.monotonic(), set(pods.now.wanted(ROLE_PREFILL, BUSY) + pods.now.wanted(ROLE_DECODE))
    prometheus.stop()
    pods.wait("the fallback acts", lambda now: len(now.ready(ROLE_PREFILL, OTHER)) == FALLBACK, BACK_SECONDS)
    record("seconds from the end of Prometheus until the fallback's pods were there", time.monotonic() - stopped)
    assert time.monotonic() - stopped >= scaled.TIMEOUT_SECONDS
    assert fleet.scaling("sunmodel", OTHER) == "Fallback"
    assert fleet.scaling("sunmodel", BUSY) == "MetricsMissing"
    kept(pods, stopped, before)
