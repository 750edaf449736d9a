"""One object: what it wishes, and above all when it must not scale in."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunfleet_operator.autoscale.capability import Throughput
from sunfleet_operator.autoscale.decision import Why
from sunfleet_operator.autoscale.member import Member, Wish, seeded, wish
from sunfleet_operator.autoscale.signals import DecodeSignals, PrefillSignals, Signals
from sunfleet_operator.autoscale.state import State
from sunfleet_optest.scaling import auto, decode, member, pods, prefill

NOW = 100_000.0
KNOWN = State(throughput=Throughput(1e9, 1e6), active_at=NOW, decided_at=NOW - 15)
BUSY = prefill(in_flight=4, requests=9, token_rate=3000, prompt_rate=1e6, concurrency=3)


def decided(one: Member, state: State = KNOWN, now: float = NOW) -> Wish:
    return wish(one, state, now)


TABLE: dict[str, tuple[Member, State, int, Why]] = {
    "load that three pods make needs three": (member(1, BUSY), KNOWN, 3, Why.LOAD_ROSE),
    "the same load on three pods is right": (member(3, BUSY), KNOWN, 3, Why.STEADY),
    "less load needs fewer": (member(5, BUSY), KNOWN, 3, Why.LOAD_FELL),
    "maxReplicas holds against the need": (member(2, BUSY, maxReplicas=2), KNOWN, 2, Why.WITHIN_LIMITS),
    "minReplicas holds against the need": (member(4, BUSY, minReplicas=4), KNOWN, 4, Why.WITHIN_LIMITS),
    "a first pod without any load is minReplicas": (member(0, prefill()), KNOWN, 1, Why.WITHIN_LIMITS),
    "pods that go for maxReplicas alone do not go for load": (
        member(3, prefill(in_flight=9, requests=9, token_rate=9000, prompt_rate=1e6, concurrency=3), maxReplicas=2),
        KNOWN, 2, Why.WITHIN_LIMITS,
    ),
    "more than maxReplicas go": (member(9, BUSY, maxReplicas=4), KNOWN, 3, Why.LOAD_FELL),
    "a window holds a fall": (Member(auto(), pods(5), BUSY), KNOWN, 5, Why.STABILIZING),
    "pods that are not Ready yet are counted": (member(3, BUSY, ready=1), KNOWN, 3, Why.STEADY),
    "before the first pod is Ready nothing goes": (member(3, prefill(), ready=0), KNOWN, 3, Why.NEVER_READY),
    "a pause holds": (member(1, BUSY, paused=True), KNOWN, 1, Why.PAUSED),
    "a capacity next to nothing needs all pods": (
        member(1, decode(queued=46, capacity=1e-308)), KNOWN, 10, Why.LOAD_ROSE,
    ),
    "decode room that is promised needs pods": (member(1, decode(reserved=1500)), KNOWN, 2, Why.LOAD_ROSE),
    "decode room that is waited for needs pods": (
        member(1, decode(reserved=500, queued=1000)), KNOWN, 2, Why.LOAD_ROSE,
    ),
    "a decode pool without work keeps one": (member(3, decode()), KNOWN, 1, Why.LOAD_FELL),
    "a pool whose pods all died keeps what it knew of them": (
        member(2, decode(reserved=1500, capacity=0.0, endpoints=0.0)), replace(KNOWN, capacity_per_pod=1000.0), 2,
        Why.STEADY,
    ),
    "a pool that nobody knows anything of is held": (
        member(2, decode(capacity=0.0, endpoints=0.0)), State(), 2, Why.METRICS_MISSING,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLE, ids=str)
def test_a_wish_and_its_reason(case: str) -> None:
    one, state, count, why = TABLE[case]
    decision = decided(one, state).decision
    assert (decision.replicas, decision.why) == (count, why), decision.message


def test_prefill_backlog_is_no_decode_work_and_decode_queues_are_no_prefill_work() -> None:
    waiting_for_room = prefill(in_flight=500, requests=1)  # all of them wait for a decode pod
    assert decided(member(1, waiting_for_room)).decision.replicas == 1
    assert decided(member(1, decode(reserved=100))).decision.replicas == 1
    assert not {"backlog", "token_rate"} & set(DecodeSignals.__dataclass_fields__)
    assert not {"reserved", "queued"} & set(PrefillSignals.__dataclass_fields__)


# Fail safe -------------------------------------------------------------------------------------------

BLIND: dict[str, Signals | None] = {
    "Prometheus is down": None,
    "the answer is empty": PrefillSignals(),
    "one series is absent": replace(BUSY, backlog=None),
    "a figure is not a number": replace(BUSY, token_rate=math.nan),
    "a figure is infinite": replace(BUSY, concurrency=math.inf),
    "a figure is negative": replace(BUSY, in_flight=-1.0),
    "the newest sample is old": replace(prefill(), age=121.0),
    "the pool's answer is empty": DecodeSignals(),
    "the pool's newest sample is old": replace(decode(), age=121.0),
}


@pytest.mark.parametrize("case", BLIND, ids=str)
def test_without_figures_the_count_is_held_and_said(case: str) -> None:
    for present in (1, 9):
        decision = decided(member(present, BLIND[case])).decision
        assert (decision.replicas, decision.blind) == (present, True)
        assert decision.message


@pytest.mark.parametrize("case", BLIND, ids=str)
def test_without_figures_only_what_may_be_at_zero_stays_there(case: str) -> None:
    """A new pool under a budget begins at 0, and only a first pod can tell what a pod can do."""
    assert decided(member(0, BLIND[case], **IDLE)).decision.replicas == 0
    for least in (0, 1, 3):
        decision = decided(member(0, BLIND[case], minReplicas=least)).decision
        assert (decision.replicas, decision.blind) == (max(1, least), True)


numbers = st.one_of(st.none(), st.sampled_from([0.0, math.nan, math.inf, -1.0]), st.floats(0, 1e7))
prefills = st.builds(PrefillSignals, *[numbers] * 10)
decodes = st.builds(DecodeSignals, *[numbers] * 5)


@given(
    signals=st.one_of(st.none(), prefills, decodes), present=st.integers(0, 20), ready=st.integers(0, 20),
    fallback=st.one_of(st.just("Hold"), st.integers(0, 30)), blind_for=st.floats(0, 1000),
)  # fmt: skip
def test_whatever_the_metrics_say_a_blind_decision_never_scales_in(
    signals: Signals | None, present: int, ready: int, fallback: int | str, blind_for: float
) -> None:
    one = member(present, signals, ready=min(ready, present), fallback=fallback, maxReplicas=20)
    decision = decided(one, replace(KNOWN, blind_since=NOW - blind_for)).decision
    if decision.blind:
        assert decision.replicas >= present
    else:
        assert signals is not None
        assert 0 <= decision.replicas <= 20


@pytest.mark.parametrize("quiet", [prefill(), decode()], ids=["prefill", "decode"])
def test_figures_of_only_some_routers_raise_a_count_but_never_lower_it(quiet: Signals) -> None:
    seen_by_one = replace(member(5, quiet, **IDLE), partial="1 of 2 routers cannot be scraped")
    decision = decided(seen_by_one, replace(KNOWN, active_at=0.0)).decision
    assert (decision.replicas, decision.why) == (5, Why.METRICS_MISSING)
    assert decided(replace(seen_by_one, pods=pods(1), signals=BUSY)).decision.replicas == 3


def test_the_fallback_comes_after_the_timeout_and_is_never_fewer_than_now() -> None:
    one = member(2, None, fallback=4, metricsTimeoutSeconds=60)
    first = decided(one, now=NOW)
    assert (first.decision.replicas, first.decision.why) == (2, Why.METRICS_MISSING)
    later = decided(one, first.state, NOW + 60).decision
    assert (later.replicas, later.why) == (4, Why.FALLBACK)
    assert decided(member(7, None, fallback=4), replace(KNOWN, blind_since=0.0)).decision.replicas == 7
    assert decided(member(2, None, fallback=99), replace(KNOWN, blind_since=0.0)).decision.replicas == 10


def test_figures_that_come_back_end_the_blindness() -> None:
    blind = decided(member(2, None)).state
    assert blind.blind_since == NOW
    assert decided(member(2, BUSY), blind, NOW + 15).state.blind_since is None


def test_a_hole_in_the_metrics_teaches_nothing_of_the_pods() -> None:
    blind = decided(member(2, None)).state
    assert blind.throughput == KNOWN.throughput


IDLE: dict[str, Any] = {"scaleToZero": {"idleSeconds": 60}, "minReplicas": 0}
HOLES: dict[str, Member] = {
    "Prometheus is away": replace(member(1, BUSY, **IDLE), signals=None),
    "a router cannot be scraped": replace(member(1, prefill(), **IDLE), partial="1 router"),
    "a person has paused it": replace(member(1, prefill(), **IDLE), paused=True),
}


@pytest.mark.parametrize("case", HOLES, ids=str)
def test_a_time_of_which_nobody_knows_is_no_idle_time(case: str) -> None:
    state = decided(member(1, BUSY, **IDLE)).state
    for seconds in range(15, 600, 15):  # ten times idleSeconds
        state = decided(HOLES[case], state, NOW + seconds).state
    back = decided(member(1, prefill(), **IDLE), state, NOW + 600)
    assert back.decision.replicas == 1
    assert decided(member(1, prefill(), **IDLE), back.state, NOW + 660).decision.replicas == 0


@pytest.mark.parametrize("case", HOLES, ids=str)
def test_after_a_hole_longer_than_the_window_scaling_in_waits_for_a_window_of_figures(case: str) -> None:
    def five(**more: Any) -> Member:
        return Member(auto(), pods(5), BUSY, **more)

    hole = {"partial": HOLES[case].partial, "paused": HOLES[case].paused}
    state = decided(five()).state
    for seconds in range(15, 600, 15):
        blind = replace(five(**hole), signals=HOLES[case].signals)
        state = decided(blind, state, NOW + seconds).state
    back = decided(five(), state, NOW + 600)
    assert (back.decision.replicas, back.decision.why) == (5, Why.STABILIZING)
    assert decided(five(), back.state, NOW + 600 + 284).decision.replicas == 5
    assert decided(five(), back.state, NOW + 600 + 300).decision.replicas == 3


@pytest.mark.parametrize("case", HOLES, ids=str)
def test_a_hole_over_which_counters_have_counted_delays_nothing(case: str) -> None:
    state = decided(member(1, BUSY, **IDLE)).state
    for seconds in (15, 30, 45):
        state = decided(HOLES[case], state, NOW + seconds).state
    assert decided(member(1, prefill(), **IDLE), state, NOW + 60).decision.replicas == 0


def test_after_a_hole_nothing_holds_back_more_pods() -> None:
    slow = {"scaleUp": {"stabilizationWindowSeconds": 300}}
    state = KNOWN
    for seconds in range(0, 600, 15):
        state = decided(replace(member(1, BUSY, behavior=slow), signals=None), state, NOW + seconds).state
    assert decided(member(1, BUSY, behavior=slow), state, NOW + 600).decision.replicas == 3


# Zero ------------------------------------------------------------------------------------------------


def test_it_goes_to_zero_after_idle_seconds_and_not_before() -> None:
    state = decided(member(1, BUSY, **IDLE)).state
    at_59 = decided(member(1, prefill(), **IDLE), state, NOW + 59)
    assert at_59.decision.replicas == 1
    at_60 = decided(member(1, prefill(), **IDLE), at_59.state, NOW + 60)
    assert (at_60.decision.replicas, at_60.decision.why) == (0, Why.IDLE)


@pytest.mark.parametrize("sign_of_life", ["in_flight", "requests", "backlog"])
def test_any_work_keeps_it_and_brings_it_back(sign_of_life: str) -> None:
    working = prefill(**{sign_of_life: 1.0})
    stale = replace(KNOWN, active_at=0.0)
    assert decided(member(1, working, **IDLE), stale).decision.replicas == 1
    back = decided(member(0, working, **IDLE), stale).decision
    assert (back.replicas, back.why) == (1, Why.WOKEN)


def test_it_comes_back_at_once_whatever_the_windows_say() -> None:
    slow = {"scaleUp": {"stabilizationWindowSeconds": 3600, "selectPolicy": "Disabled"}}
    assert decided(member(0, prefill(in_flight=1), **IDLE, behavior=slow)).decision.replicas == 1


def test_a_cold_start_longer_than_idle_seconds_does_not_send_it_back_to_zero() -> None:
    state = decided(member(0, prefill(in_flight=1), **IDLE)).state
    for seconds in range(15, 600, 15):  # ten times idleSeconds, and the client has long given up
        step = decided(member(1, prefill(), ready=0, **IDLE), state, NOW + seconds)
        assert step.decision.replicas == 1, seconds
        state = step.state
    ready = decided(member(1, prefill(), **IDLE), state, NOW + 615)
    assert ready.decision.replicas == 1  # the idle clock begins now
    assert decided(member(1, prefill(), **IDLE), ready.state, NOW + 700).decision.replicas == 0


def test_a_new_process_starts_the_idle_clock_anew() -> None:
    fresh = decided(member(1, prefill(), **IDLE), State())
    assert fresh.decision.replicas == 1
    assert decided(member(1, prefill(), **IDLE), fresh.state, NOW + 61).decision.replicas == 0


def test_without_scale_to_zero_one_pod_stays_for_ever() -> None:
    assert decided(member(1, prefill(), minReplicas=0), replace(KNOWN, active_at=0.0)).decision.replicas == 1
    assert decided(member(0, prefill(), minReplicas=0), KNOWN).decision.replicas == 1


def test_scale_down_disabled_also_forbids_zero() -> None:
    one = member(1, prefill(), **IDLE, behavior={"scaleDown": {"selectPolicy": "Disabled"}})
    assert decided(one, replace(KNOWN, active_at=0.0)).decision.replicas == 1


# Memory ----------------------------------------------------------------------------------------------


def test_a_fall_waits_for_the_window_and_is_bounded_by_it() -> None:
    one = Member(auto(), pods(5), BUSY)
    state, count, now = KNOWN, 5, NOW
    while count == 5:
        now += 15
        step = wish(replace(one, pods=pods(count)), state, now)
        state, count = step.state, step.decision.replicas
        assert now < NOW + 400
    assert 300 <= now - NOW <= 330
    assert count == 3


def test_what_somebody_else_changed_counts_for_the_rate() -> None:
    four = {"scaleUp": {"policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}]}}
    much = prefill(in_flight=9, token_rate=9000, prompt_rate=1e6, concurrency=9)
    state = wish(Member(auto(behavior=four), pods(1), much), KNOWN, NOW).state
    by_hand = wish(Member(auto(behavior=four), pods(4), much), state, NOW + 15).decision
    assert by_hand.replicas == 5


def test_a_trend_starts_a_pod_before_it_is_needed() -> None:
    def run(prediction: str) -> int:
        state, count = KNOWN, 1
        for step in range(8):
            rising = prefill(in_flight=1, token_rate=300.0 + 100 * step, prompt_rate=1e6, concurrency=0.5)
            one = replace(member(1, rising, prediction=prediction), pods=pods(1, startup_seconds=120.0))
            made = wish(one, state, NOW + 15 * step)
            state, count = made.state, made.decision.replicas
        return count

    assert run("Off") == 1
    assert run("Trend") == 2


def test_a_status_gives_a_new_process_what_the_old_one_had_learnt() -> None:
    decision = decided(member(1, BUSY)).decision
    state = seeded(decision.inputs)
    assert state.throughput.per_pod == pytest.approx(1000, rel=0.2)
    assert decided(member(1, BUSY), state).decision.replicas == 3
    assert seeded({"podTokensPerSecond": "x"}) == State() == seeded({"podKvTokens": "-1"})


def test_how_much_prompts_vary_is_learnt_round_by_round_and_its_lack_is_no_lack_of_metrics() -> None:
    even = prefill(in_flight=1, token_rate=1000, prompt_rate=10, square_rate=100_000, concurrency=1)
    state = KNOWN
    for seconds in range(0, 600, 15):
        step = decided(member(1, even), state, NOW + seconds)
        state = step.state
    assert float(step.decision.inputs["lengthVariability"]) < 0.1
    for unknown in (None, float("nan"), -1.0):
        older = decided(member(1, replace(even, square_rate=unknown)), KNOWN).decision
        assert older.inputs["lengthVariability"] == "1"
        assert not older.blind


def test_a_decision_names_its_figures() -> None:
    inputs = decided(member(1, BUSY)).decision.inputs
    assert inputs["tokenRate"] == "3000"
    assert {"need", "podTokensPerSecond", "readyPods", "wantedPods"} <= set(inputs)
    assert all(len(value) <= 64 for value in inputs.values())
    assert decided(member(1, BUSY, paused=True)).decision.inputs["tokenRate"] == "3000"
