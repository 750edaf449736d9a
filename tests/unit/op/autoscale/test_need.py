"""How many pods would do, and what is learnt of one pod."""

from __future__ import annotations

import heapq
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunfleet_api.scaling import Targets
from sunfleet_operator.autoscale.capability import LEAST_SECONDS, Lengths, Throughput, learn, seen
from sunfleet_operator.autoscale.need import (
    LATE_SHARE,
    PrefillLoad,
    decode_need,
    expected,
    predicted,
    prefill_need,
    staffed,
)

TWO_SECONDS = Targets(queue_seconds=2)


def load(**figures: float | None) -> PrefillLoad:
    """Of pods that make 1000 tokens a second; what came is what was served, unless the test says otherwise."""
    quiet: dict[str, float | None] = {
        "token_rate": 0.0, "prompt_rate": 0.0, "backlog": 0.0, "oldest": 0.0, "per_pod": 1000.0,
        "arriving": figures.get("token_rate", 0.0),
    }  # fmt: skip
    return PrefillLoad(**{**quiet, **figures})  # type: ignore[arg-type]


NEEDS: dict[str, tuple[PrefillLoad, int, int, float]] = {
    "no work needs nothing": (load(), 1, 1, 0.0),
    "tiny prompts may load a pod fully": (load(token_rate=1000, prompt_rate=1e9), 1, 1, 1.0),
    "what waits is to be gone within queueSeconds": (
        load(token_rate=1000, prompt_rate=1e9, backlog=4000), 1, 1, 3.0,
    ),
    "no pod helps before it has started": (
        load(token_rate=1000, prompt_rate=1e9, backlog=4000, startup=40), 1, 1, 1.1,
    ),
    "what grows arrives too": (load(token_rate=1000, prompt_rate=1e9, arriving=2000), 1, 1, 2.0),
    "a backlog that is worked off is served faster than it comes": (
        load(token_rate=4000, prompt_rate=1e9, arriving=1000), 4, 4, 1.0,
    ),
    "prompts of one length wait half as long as those that vary as chance does": (
        load(token_rate=500, prompt_rate=0.5, variability=0.0), 1, 1, 1.06,
    ),
    "the same with lengths that vary": (load(token_rate=500, prompt_rate=0.5), 1, 1, 1.391),
    "and with a few that are very long": (load(token_rate=500, prompt_rate=0.5, variability=4.0), 1, 1, 1.898),
    "a load that has just risen counts": (load(token_rate=500, prompt_rate=1e9, recent=2000), 1, 1, 2.0),
    "a load that has just fallen counts": (load(token_rate=2000, prompt_rate=1e9, recent=500), 3, 3, 0.5),
    "a prompt that is being computed does not wait": (load(token_rate=10, prompt_rate=0.01, backlog=900), 1, 1, 0.355),
    "without pods everything waits": (load(backlog=4000), 0, 0, 2.0),
    "a prompt that waits too long wants one more than there are": (load(backlog=1, oldest=2.1), 3, 3, 4.0),
    "a long prompt that is being computed does not": (
        load(token_rate=10, prompt_rate=0.01, backlog=900, oldest=2.1), 1, 1, 0.355,
    ),
    "but not while a pod is on its way": (load(backlog=1, oldest=2.1), 2, 3, 0.0005),
    "unknown pods: work keeps what is there": (load(per_pod=None, token_rate=5), 2, 2, 2.0),
    "unknown pods: age adds one": (load(per_pod=None, backlog=5, oldest=9), 2, 2, 3.0),
    "unknown pods: age adds none while one is pending": (load(per_pod=None, backlog=5, oldest=9), 1, 2, 2.0),
    "unknown pods without work are not needed": (load(per_pod=None), 2, 2, 0.0),
}  # fmt: skip


@pytest.mark.parametrize("case", NEEDS, ids=str)
def test_prefill_pods_that_are_needed(case: str) -> None:
    figures, ready, present, pods = NEEDS[case]
    assert prefill_need(figures, TWO_SECONDS, ready=ready, present=present) == pytest.approx(pods, rel=2e-2)


def test_a_rate_that_chance_explains_is_no_change_of_load() -> None:
    """Thirty prompts in half a minute stray by eight; three thousand by eighty."""
    few = load(token_rate=1000, prompt_rate=1, recent=1400)
    many = load(token_rate=100_000, prompt_rate=100, recent=140_000)
    assert expected(few) == 1000
    assert expected(many) == 140_000
    assert expected(load(token_rate=1000, prompt_rate=1, recent=None)) == 1000
    alike = load(token_rate=1000, prompt_rate=1, recent=1400, variability=0.0)
    assert expected(alike) == 1400  # only the times at which they come are chance


def late_share(busy: float, pods: int, service: float, queue: float, sigma: float | None = None) -> float:
    """Prompts that come by chance to pods that work them off in order of arrival: who waits longer than ``queue``.
    Lengths are exponential, or log-normal with ``sigma``."""
    chance = random.Random(7)  # noqa: S311 - prompts, not secrets
    free = [0.0] * pods
    now, late, count = 0.0, 0, 40_000
    for _ in range(count):
        now += chance.expovariate(busy / service)
        begun = max(now, heapq.heappop(free))
        late += begun - now > queue
        length = chance.expovariate(1) if sigma is None else chance.lognormvariate(-(sigma**2) / 2, sigma)
        heapq.heappush(free, begun + service * length)
    return late / count


@pytest.mark.parametrize("busy", [0.3, 2.0, 12.0])
@pytest.mark.parametrize("queue", [1.0, 4.0])
def test_so_many_pods_that_one_prompt_in_twenty_is_late_as_a_queue_of_random_prompts_shows(
    busy: float, queue: float
) -> None:
    pods = staffed(busy, 1.0, queue)
    enough, too_few = math.ceil(pods), math.floor(pods) - 1
    assert late_share(busy, enough, 1.0, queue) <= LATE_SHARE * 1.5  # it is an approximation
    if too_few > busy:
        assert late_share(busy, too_few, 1.0, queue) > LATE_SHARE


@pytest.mark.parametrize("busy", [0.3, 2.0, 12.0])
@pytest.mark.parametrize("sigma", [0.0, 0.7, 1.2])
def test_the_same_is_so_however_lengths_vary(busy: float, sigma: float) -> None:
    pods = staffed(busy, 1.0, 2.0, math.exp(sigma**2) - 1)
    assert late_share(busy, math.ceil(pods), 1.0, 2.0, sigma) <= LATE_SHARE * 1.5
    if (too_few := math.floor(pods) - 1) > busy:
        assert late_share(busy, too_few, 1.0, 2.0, sigma) > LATE_SHARE


def lengths_of(*prompts: float, times: int = 1) -> Lengths:
    """What is learnt of prompts of these lengths, one after the other a second."""
    known = Lengths()
    for _ in range(times):
        for one in prompts:
            known = seen(known, prompt_rate=1, token_rate=one, square_rate=one**2, seconds=1)
    return known


def test_how_much_lengths_vary_is_learnt_and_believed_the_more_prompts_were_seen() -> None:
    assert Lengths().variability == 1.0
    assert lengths_of(500, times=50).variability == pytest.approx(0.5, abs=0.01)
    assert lengths_of(500, times=5000).variability == pytest.approx(0.0, abs=0.05)
    assert lengths_of(100, 300, times=5000).variability == pytest.approx(0.25, abs=0.05)
    assert lengths_of(*[10] * 99, 10_000, times=100).variability > 20


def test_lengths_that_cannot_be_true_and_those_of_an_older_router_teach_nothing() -> None:
    known = lengths_of(100, 300, times=9)
    assert seen(known, prompt_rate=1, token_rate=100, square_rate=0, seconds=15) == known
    assert seen(known, prompt_rate=2, token_rate=100, square_rate=4000, seconds=15) == known  # less than the mean's
    assert seen(known, prompt_rate=0, token_rate=0, square_rate=0, seconds=15) == known


@given(busy=st.floats(0, 500), service=st.floats(0, 100), queue=st.floats(0.1, 100))
def test_more_load_or_longer_prompts_need_more_and_never_fewer_than_are_busy(
    busy: float, service: float, queue: float
) -> None:
    need = staffed(busy, service, queue)
    assert busy <= need <= busy + 1 + 8 * math.sqrt(busy + 1)
    assert staffed(busy * 1.5, service, queue) >= need - 1e-3
    assert staffed(busy, service * 2, queue) >= need - 1e-3
    assert staffed(busy, service, queue * 2) <= need + 1e-3


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
