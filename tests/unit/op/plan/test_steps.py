"""A canary's way through its steps, for every order of what can happen."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from sunfleet_api.canary import Analysis, CanaryStep
from sunfleet_operator.figures import ByRevision, Figures, Measured
from sunfleet_operator.plan.steps import Facts, State, advance, fault, ordered, shares, weight

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ANALYSIS = Analysis(min_requests=100, max_error_percent=1, max_latency_increase_percent=10)
GOOD = Figures(200, 0, 200, 2000)
STEPS = st.lists(
    st.builds(CanaryStep, weight=st.integers(1, 100), pause_seconds=st.integers(0, 60)),
    max_size=4, unique_by=lambda step: step.weight,
)  # fmt: skip
AMOUNT = st.integers(0, 400).map(float)
FIGURES = st.builds(lambda ok, failed, s, t: Figures(ok + failed, failed, s, t), AMOUNT, AMOUNT, AMOUNT, AMOUNT)
MEASURED = st.none() | st.builds(Measured, FIGURES, FIGURES, st.sampled_from(["", "", "", "no Prometheus"]))
WORDS = st.sampled_from(["", "", "", "because"])
HAPPENS = st.lists(st.tuples(WORDS, WORDS, st.booleans(), MEASURED, st.integers(0, 120)), max_size=25)
ORDER = {"Verifying": 0, "Progressing": 1, "Promotable": 2, "RolledBack": 3}


def _facts(steps: list[CanaryStep], refused: str, waits: str, paused: bool, measured: Measured | None) -> Facts:
    return Facts(steps, ANALYSIS, refused=refused, waits=waits, paused=paused, measured=measured)


@given(STEPS, HAPPENS)
def test_it_only_moves_forward_one_step_at_a_time_and_nothing_leads_back_from_a_roll_back(
    steps: list[CanaryStep], happens: list[tuple[str, str, bool, Measured | None, int]]
) -> None:
    state, now = advance(None, Facts(steps, ANALYSIS, waits="pods"), NOW), NOW
    for refused, waits, paused, measured, seconds in happens:
        now += timedelta(seconds=seconds)
        facts = _facts(steps, refused, waits, paused, measured)
        new = advance(state, facts, now)
        assert ORDER[new.phase] >= ORDER[state.phase]
        assert 0 <= new.step - state.step <= 1
        if state.phase == "RolledBack":
            assert new == state
        moved = (new.phase, new.step) != (state.phase, state.step)
        if moved and new.phase != "RolledBack":
            assert not waits
            assert not paused
        if state.phase == new.phase == "Progressing" and new.step > state.step:
            assert measured is not None
            assert not measured.fault
            assert not fault(ANALYSIS, measured)
            assert measured.candidate.requests >= ANALYSIS.min_requests
            assert (now - state.began).total_seconds() >= ordered(steps)[state.step].pause_seconds
        assert new.began == (now if moved else state.began)
        assert new.reason
        state = new


@given(STEPS, HAPPENS)
def test_its_share_is_that_of_its_step_and_none_before_and_after(
    steps: list[CanaryStep], happens: list[tuple[str, str, bool, Measured | None, int]]
) -> None:
    state, now = State("Verifying", 0, NOW), NOW
    for refused, waits, paused, measured, seconds in happens:
        now += timedelta(seconds=seconds)
        facts = _facts(steps, refused, waits, paused, measured)
        state = advance(state, facts, now)
        share = weight(state, facts)
        if state.phase in {"Verifying", "RolledBack"} or waits or not steps:
            assert share == 0
        else:
            assert share == ordered(steps)[state.step].weight


@given(STEPS.filter(bool))
def test_with_good_figures_and_time_it_gets_through(steps: list[CanaryStep]) -> None:
    state, now = State("Verifying", 0, NOW), NOW
    for _ in range(len(steps) + 1):
        state = advance(state, Facts(steps, ANALYSIS, measured=Measured(GOOD, GOOD)), now)
        now += timedelta(seconds=61)
    assert state.phase == "Promotable"


@given(FIGURES, FIGURES)
def test_too_few_requests_judge_nothing_and_worse_figures_are_never_better(mine: Figures, theirs: Figures) -> None:
    bad = fault(ANALYSIS, Measured(mine, theirs))
    if mine.requests < ANALYSIS.min_requests:
        assert not bad
    elif bad:
        worse = Figures(mine.requests, min(mine.requests, mine.failed * 2 + 1), mine.seconds * 2, mine.tokens)
        assert fault(ANALYSIS, Measured(worse, theirs))


def test_errors_and_slowness_are_told_with_figures() -> None:
    assert "3.0 % of 200 requests failed, 1 % are allowed" in fault(ANALYSIS, Measured(Figures(200, 6), GOOD))
    slow = fault(ANALYSIS, Measured(Figures(200, 0, 300, 2000), GOOD))
    assert "150.0 ms per output token instead of 100.0 ms, 50 % more, 10 % are allowed" in slow


def test_at_a_hundred_percent_there_is_nobody_to_be_slower_than() -> None:
    assert fault(ANALYSIS, Measured(Figures(200, 0, 9e9, 1), Figures())) == ""


def test_a_promotable_canary_is_still_given_up_for_errors() -> None:
    state = State("Promotable", 0, NOW, "done")
    facts = Facts([CanaryStep(weight=5)], ANALYSIS, measured=Measured(Figures(200, 50), GOOD))
    assert advance(state, facts, NOW).phase == "RolledBack"


@given(
    st.dictionaries(st.sampled_from(["a", "b"]), st.integers(1, 99), min_size=2, max_size=2).map(
        lambda given: {"a": given["a"], "b": 100 - given["a"]}
    )
    | st.just({"a": 100}),
    st.integers(0, 100),
)
def test_shares_add_up_to_a_hundred_and_keep_their_proportion(base: dict[str, int], percent: int) -> None:
    made = shares(base, "canary", percent)
    assert sum(made.values()) == 100
    assert made.get("canary", 0) == percent
    for name, share in base.items():
        assert abs(made[name] - share * (100 - percent) / 100) < 1


def test_where_nothing_serves_a_canary_gets_nothing_either() -> None:
    assert shares({}, "canary", 50) == {}


def test_what_is_measured_beside_a_candidate_is_everything_else_together() -> None:
    measured = ByRevision({"new": Figures(1, 1, 1, 1), "a": Figures(2, 1, 3, 4), "b": Figures(3, 0, 5, 6)}).of("new")
    assert (measured.candidate, measured.present) == (Figures(1, 1, 1, 1), Figures(5, 1, 8, 10))
    assert ByRevision(fault="gone").of("new").fault == "gone"
