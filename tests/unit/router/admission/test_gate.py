"""Who may begin: rates and requests in flight of tasks and keys, and what is given back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sunfleet_router.admission.gate import Gate
from sunfleet_router.admission.load import Load
from sunfleet_router.errors import BusyError, InvalidRequestError
from sunfleet_router.fleet.current import Fleet
from sunfleet_router.fleet.replicas import Replicas
from sunfleet_router.fleet.snapshot import Limits, Rate, Snapshot, Task
from sunfleet_router.keys.key import ANYONE, Key
from sunfleet_router.policies.rate import Bucket


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.fixture
def gate(fleet: Fleet, clock: Clock) -> Gate:
    return Gate(fleet, Load(1.0), Replicas(), clock)


def task(rate: Rate = Rate(), most: int | None = None) -> Task:  # noqa: B008 a frozen value
    return Task("t", limits=Limits(rate=rate, max_in_flight=most))


def key(name: str = "k", rate: Rate = Rate(), most: int | None = None) -> Key:  # noqa: B008 a frozen value
    return Key(name, ("*",), max_in_flight=most, rate=rate)


def pass_through(gate: Gate, one: Task, by: Key, tokens: int, spent: int | None = None) -> None:
    with gate.enter(one, by, tokens) as count:
        count.output = tokens if spent is None else spent


def refused(action: Callable[[], None]) -> tuple[str, int | None]:
    with pytest.raises(BusyError) as error:
        action()
    return error.value.code, error.value.retry_after


@pytest.mark.parametrize(("of_key", "prefix"), [(False, ""), (True, "key_")])
def test_requests_beyond_a_minutes_rate_are_refused_with_the_time_to_wait(
    gate: Gate, clock: Clock, of_key: bool, prefix: str
) -> None:
    rate = Rate(requests=6)
    one, by = (task(), key(rate=rate)) if of_key else (task(rate), ANYONE)
    for _ in range(6):
        pass_through(gate, one, by, 1)
    assert refused(lambda: pass_through(gate, one, by, 1)) == (f"{prefix}requests_per_minute", 10)
    clock.now += 10
    pass_through(gate, one, by, 1)


@pytest.mark.parametrize(("of_key", "prefix"), [(False, ""), (True, "key_")])
def test_tokens_are_taken_as_reserved_and_what_was_not_used_comes_back(
    gate: Gate, clock: Clock, of_key: bool, prefix: str
) -> None:
    rate = Rate(tokens=600)
    one, by = (task(), key(rate=rate)) if of_key else (task(rate), ANYONE)
    with gate.enter(one, by, 500) as spent:
        assert refused(lambda: pass_through(gate, one, by, 200)) == (f"{prefix}tokens_per_minute", 10)
        spent.prompt, spent.output = 50, 50
    pass_through(gate, one, by, 500)
    clock.now += 60
    pass_through(gate, one, by, 600)


def test_a_request_larger_than_a_minute_holds_waits_for_a_full_minute_and_owes_the_rest(
    gate: Gate, clock: Clock
) -> None:
    one = task(Rate(tokens=100))
    pass_through(gate, one, ANYONE, 250)
    assert refused(lambda: pass_through(gate, one, ANYONE, 1)) == ("tokens_per_minute", 91)
    clock.now += 91
    pass_through(gate, one, ANYONE, 1)


def test_a_refusal_by_the_last_limit_costs_nothing_at_the_others(gate: Gate, clock: Clock) -> None:
    one, poor = task(Rate(requests=2, tokens=100)), key("poor", Rate(requests=60, tokens=1))
    pass_through(gate, one, poor, 1)
    for _ in range(5):
        assert refused(lambda: pass_through(gate, one, poor, 1))[0] == "key_tokens_per_minute"
    pass_through(gate, one, key("rich"), 50)
    assert not gate.keys


def test_a_key_has_its_own_number_of_requests_in_flight_and_each_task_too(gate: Gate) -> None:
    by = key(most=2)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(gate.enter(task(), by, 1))
        assert refused(lambda: pass_through(gate, task(), by, 1)) == ("key_too_many_in_flight", 1)
        pass_through(gate, task(most=3), key("other"), 1)
        assert refused(lambda: pass_through(gate, task(most=2), key("other"), 1)) == ("too_many_in_flight", 1)
    pass_through(gate, task(), by, 1)
    assert not gate.keys


def test_a_changed_rate_counts_at_once_and_an_unused_one_takes_no_memory(
    gate: Gate, fleet: Fleet, clock: Clock
) -> None:
    pass_through(gate, task(Rate(requests=1)), ANYONE, 1)
    clock.now += 15
    pass_through(gate, task(Rate(requests=4)), ANYONE, 1)
    fleet.replace(Snapshot())
    assert gate._buckets
    clock.now += 60
    fleet.replace(Snapshot())
    assert not gate._buckets


@pytest.mark.parametrize(("least", "wanted", "fine"), [(0, 0, True), (0, 5, True), (0, -1, False), (-3, -3, True)])
def test_anyone_may_stand_back_and_only_a_key_that_may_pushes_ahead(least: int, wanted: int, fine: bool) -> None:
    by = Key("k", ("*",), priority=least)
    if fine:
        by.check_priority(wanted)
        return
    with pytest.raises(InvalidRequestError, match="at least 0"):
        by.check_priority(wanted)


@settings(max_examples=50)
@given(
    st.integers(1, 100),
    st.lists(st.tuples(st.floats(0, 30), st.integers(1, 50), st.floats(0, 1)), min_size=1, max_size=60),
)
def test_in_any_time_no_more_is_used_than_the_rate_and_one_full_minute_allow(
    per_minute: int, steps: list[tuple[float, int, float]]
) -> None:
    now, used, largest, bucket = 0.0, 0.0, 0, Bucket(per_minute, 0.0)
    for pause, cost, share in steps:
        now += pause
        seconds = bucket.take(cost, now)
        if seconds:
            assert bucket.take(cost, now + seconds * 0.99 - 1e-6) > 0 or seconds < 1e-3
            continue
        bucket.give_back(cost * (1 - share))
        used += cost * share
        largest = max(largest, cost)
    assert used <= per_minute + now * per_minute / 60 + largest + 1e-6


# Several routers


@given(st.integers(0, 10_000), st.integers(1, 50))
def test_the_parts_of_all_routers_make_up_a_limit_and_no_more_than_rounding(limit: int, count: int) -> None:
    part = Replicas(count).part(limit)
    assert limit <= part * count < limit + count
    assert Replicas(count).part(None) is None
    assert Replicas(count).rate(limit) * count == pytest.approx(limit)


def test_a_router_among_others_takes_its_part_and_says_what_the_whole_is(gate: Gate, clock: Clock) -> None:
    gate._replicas.count = 3
    one = task(Rate(requests=6, tokens=600))
    for _ in range(2):
        pass_through(gate, one, key(rate=Rate(requests=60)), 1)
    with pytest.raises(BusyError, match=r"6 requests per minute \(3 routers share them\); try again in 30 s"):
        pass_through(gate, one, ANYONE, 1)
    clock.now += 30
    pass_through(gate, one, ANYONE, 1)
    for code, busy, by in (
        ("too_many_in_flight", task(most=4), ANYONE), ("key_too_many_in_flight", task(), key(most=4)),
    ):  # fmt: skip
        with ExitStack() as inside:
            for _ in range(2):
                inside.enter_context(gate.enter(busy, by, 1))
            with pytest.raises(BusyError, match=r"4 requests in flight \(3 routers") as refusal:
                gate.enter(busy, by, 1).__enter__()
            assert refusal.value.code == code
    gate._replicas.count = 0
    with ExitStack() as inside:
        for _ in range(4):
            inside.enter_context(gate.enter(task(most=4), ANYONE, 1))


def test_a_router_that_comes_or_goes_makes_nobody_a_present_of_a_minute() -> None:
    bucket = Bucket(60, 0)
    assert bucket.take(30, 0) == 0
    bucket.resize(30, 0)
    assert bucket.take(15, 0) == 0
    assert bucket.take(1, 0) > 0
    bucket.resize(60, 0)
    assert bucket.take(1, 0) > 0
