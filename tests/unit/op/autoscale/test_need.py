"""How many pods would do, and what is learnt of one pod."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sunfleet_api.scaling import Targets
from sunfleet_operator.autoscale.capability import LEAST_SECONDS, Throughput, learn
from sunfleet_operator.autoscale.need import PrefillLoad, decode_need, predicted, prefill_need, target_load

CALM = settings(deadline=None)  # a busy machine is no fault

TWO_SECONDS = Targets(queue_seconds=2)


def load(**figures: float | None) -> PrefillLoad:
    quiet: dict[str, float | None] = {
        "token_rate": 0.0, "prompt_rate": 0.0, "backlog": 0.0, "oldest": 0.0, "per_pod": 1000.0,
    }  # fmt: skip
    return PrefillLoad(**{**quiet, **figures})  # type: ignore[arg-type]


NEEDS: dict[str, tuple[PrefillLoad, int, int, float]] = {
    "no work needs nothing": (load(), 1, 1, 0.0),
    "tiny prompts may load a pod fully": (load(token_rate=1000, prompt_rate=1e6), 1, 1, 1.0),
    # One prompt of 1000 tokens takes a second: with two seconds of patience a pod may be busy two thirds of its time.
    "long prompts need room between them": (load(token_rate=1000, prompt_rate=1), 2, 2, 1.5),
    "what waits is to be gone within queueSeconds": (
        load(token_rate=1000, prompt_rate=1e6, backlog=4000), 1, 1, 3.0,
    ),
    "what grows arrives too": (load(token_rate=1000, prompt_rate=1e6, growth=1000), 1, 1, 2.0),
    "a backlog that shrinks takes nothing off": (load(token_rate=1000, prompt_rate=1e6, growth=-9000), 1, 1, 1.0),
    "no pod helps before it has started": (
        load(token_rate=1000, prompt_rate=1e6, backlog=4000, startup=40), 1, 1, 1.1,
    ),
    "a prompt that is being computed does not wait": (load(token_rate=10, prompt_rate=0.01, backlog=900), 1, 1, 0.015),
    "without pods everything waits": (load(backlog=4000), 0, 0, 2.0),
    "a prompt that is too old wants one more than there are": (load(oldest=2.1), 3, 3, 4.0),
    "but not while a pod is on its way": (load(oldest=2.1), 2, 3, 0.0),
    "unknown pods: work keeps what is there": (load(per_pod=None, token_rate=5), 2, 2, 2.0),
    "unknown pods: age adds one": (load(per_pod=None, backlog=5, oldest=9), 2, 2, 3.0),
    "unknown pods: age adds none while one is pending": (load(per_pod=None, backlog=5, oldest=9), 1, 2, 2.0),
    "unknown pods without work are not needed": (load(per_pod=None), 2, 2, 0.0),
}  # fmt: skip


@pytest.mark.parametrize("case", NEEDS, ids=str)
def test_prefill_pods_that_are_needed(case: str) -> None:
    figures, ready, present, expected = NEEDS[case]
    assert prefill_need(figures, TWO_SECONDS, ready=ready, present=present) == pytest.approx(expected, rel=1e-3)


def test_the_longer_the_prompts_the_less_a_pod_may_be_loaded() -> None:
    loads = [target_load(load(token_rate=1000, prompt_rate=rate), 2) for rate in (100, 10, 1, 0.1)]
    assert loads == sorted(loads, reverse=True)
    assert loads[-1] == pytest.approx(2 / 12)


def test_decode_pods_hold_what_is_promised_and_what_waits() -> None:
    assert decode_need(600, 200, 1000, Targets()) == pytest.approx(1.0)
    assert decode_need(600, 200, 1000, Targets(kv_utilization_percent=40)) == pytest.approx(2.0)


def test_capability_is_what_busy_pods_make_however_many_stand_idle() -> None:
    busy = learn(Throughput(), token_rate=4000, concurrency=2, ready=8, seconds=60)
    assert busy.per_pod == pytest.approx(2000)
    crowded = learn(Throughput(), token_rate=4000, concurrency=50, ready=4, seconds=60)
    assert crowded.per_pod == pytest.approx(1000)


def test_a_moment_of_work_teaches_nothing_yet() -> None:
    assert learn(Throughput(), token_rate=1000, concurrency=1, ready=1, seconds=LEAST_SECONDS / 2).per_pod is None
    assert Throughput.known(700).per_pod == 700
    assert learn(Throughput.known(700), token_rate=0, concurrency=0, ready=3, seconds=60).per_pod == 700


@CALM
@given(old=st.floats(10, 1e5), new=st.floats(10, 1e5))
def test_new_pods_are_learnt_within_half_an_hour_of_work(old: float, new: float) -> None:
    learnt = Throughput(old * 5000, 5000)
    for _ in range(120):
        learnt = learn(learnt, token_rate=new, concurrency=1, ready=1, seconds=15)
    assert learnt.per_pod is not None
    assert min(old, new) * 0.999 <= learnt.per_pod <= max(old, new) * 1.001
    assert abs(learnt.per_pod - new) <= 0.6 * abs(old - new) + 1


def test_a_trend_is_seen_ahead_and_a_fall_is_not() -> None:
    rising = tuple((float(at), 1 + at / 10) for at in range(0, 60, 10))
    assert predicted(rising, 50.0, 60.0) == pytest.approx(1 + 110 / 10)
    assert predicted(tuple((at, 9 - need) for at, need in rising), 50.0, 60.0) == 0
    assert predicted(rising[:2], 50.0, 60.0) == 0
    assert predicted(rising, 50.0, 0.0) == 0
