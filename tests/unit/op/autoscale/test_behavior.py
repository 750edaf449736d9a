"""``behavior`` decides as Kubernetes' horizontal controller does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunfleet_api.scaling import Behavior
from sunfleet_operator.autoscale import behavior
from sunfleet_operator.autoscale.behavior import Change, History

NOW = 10_000.0
FOUR_PODS = {"type": "Pods", "value": 4, "periodSeconds": 60}
TEN_PERCENT = {"type": "Percent", "value": 10, "periodSeconds": 60}


def rules(direction: str, **fields: Any) -> Behavior:
    return Behavior.model_validate({direction: fields})


def ago(seconds: float, count: int) -> Change:
    return Change(NOW - seconds, count)


LIMITS: dict[str, tuple[Behavior, History, int, int, int]] = {
    "by default four pods or a doubling in 15 s, whichever is more: from few": (Behavior(), History(), 1, 50, 5),
    "by default four pods or a doubling in 15 s, whichever is more: from many": (Behavior(), History(), 20, 50, 40),
    "from zero a percentage leads nowhere, pods do": (Behavior(), History(), 0, 50, 4),
    "what was added within the period counts": (Behavior(), History(added=(ago(10, 4),)), 5, 50, 5),
    "what was added before the period does not": (Behavior(), History(added=(ago(16, 4),)), 5, 50, 10),
    "what was removed within the period may come back": (
        rules("scaleUp", policies=[FOUR_PODS]), History(removed=(ago(10, 3),)), 5, 50, 12,
    ),
    "by default all may go at once": (Behavior(), History(), 50, 1, 1),
    "pods and percent: Max is the larger change, which are the pods": (
        rules("scaleDown", policies=[FOUR_PODS, TEN_PERCENT]), History(), 10, 0, 6,
    ),
    "pods and percent: Max is the larger change, which is the percentage": (
        rules("scaleDown", policies=[FOUR_PODS, TEN_PERCENT]), History(), 80, 0, 72,
    ),
    "pods and percent: Min is the smaller change": (
        rules("scaleDown", policies=[FOUR_PODS, TEN_PERCENT], selectPolicy="Min"), History(), 80, 0, 76,
    ),
    "what was removed within the period counts against it": (
        rules("scaleDown", policies=[FOUR_PODS]), History(removed=(ago(30, 3),)), 7, 0, 6,
    ),
    "a percentage down is rounded in favour of going": (
        rules("scaleDown", policies=[TEN_PERCENT]), History(), 5, 0, 4,
    ),
    "Disabled forbids up": (rules("scaleUp", selectPolicy="Disabled"), History(), 3, 9, 3),
    "Disabled forbids down": (rules("scaleDown", selectPolicy="Disabled"), History(), 3, 1, 3),
    "a spent allowance never turns the direction": (
        rules("scaleUp", policies=[FOUR_PODS]), History(added=(ago(5, 6),)), 9, 50, 9,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LIMITS, ids=str)
def test_policies_bound_the_step(case: str) -> None:
    given_rules, history, present, wanted, expected = LIMITS[case]
    assert behavior.limited(wanted, present, given_rules, history, NOW) == expected


WINDOWS: dict[str, tuple[Behavior, tuple[Change, ...], int, int, int]] = {
    "up at once by default": (Behavior(), (ago(1, 2),), 2, 6, 6),
    "down only to the highest of the last 300 s": (Behavior(), (ago(299, 5), ago(100, 3)), 6, 1, 5),
    "what is older than the window is forgotten": (Behavior(), (ago(301, 5), ago(100, 3)), 6, 1, 3),
    "an up window takes the lowest of its time": (
        rules("scaleUp", stabilizationWindowSeconds=60), (ago(30, 3), ago(61, 1)), 2, 8, 3,
    ),
    "a spike within both windows changes nothing": (
        rules("scaleUp", stabilizationWindowSeconds=60), (ago(30, 2),), 2, 8, 2,
    ),
    "a window of 0 s goes down at once": (rules("scaleDown", stabilizationWindowSeconds=0), (ago(1, 9),), 9, 1, 1),
}  # fmt: skip


@pytest.mark.parametrize("case", WINDOWS, ids=str)
def test_windows_steady_the_count(case: str) -> None:
    given_rules, recommended, present, wanted, expected = WINDOWS[case]
    assert behavior.stabilized(wanted, present, given_rules, History(recommended=recommended), NOW) == expected


@pytest.mark.parametrize(("text", "value"), [("0.1", 0.1), ("100m", 0.1), (1, 1.0), ("0", 0.0)])
def test_a_tolerance_is_a_quantity(text: int | str, value: float) -> None:
    assert behavior.quantity(text) == value


def test_within_a_tenth_nothing_happens_and_beyond_it_does() -> None:
    assert behavior.within_tolerance(10.9, 10, Behavior())
    assert behavior.within_tolerance(9.1, 10, Behavior())
    assert not behavior.within_tolerance(11.1, 10, Behavior())
    assert not behavior.within_tolerance(0.5, 0, Behavior())
    assert not behavior.within_tolerance(10.9, 10, rules("scaleUp", tolerance="50m"))


counts = st.integers(0, 200)
changes = st.lists(st.builds(Change, st.floats(NOW - 400, NOW), st.integers(1, 20)), max_size=8).map(tuple)


@given(wanted=counts, present=counts, added=changes, removed=changes)
def test_a_step_never_goes_past_what_is_wanted_nor_backwards(
    wanted: int, present: int, added: tuple[Change, ...], removed: tuple[Change, ...]
) -> None:
    count = behavior.limited(wanted, present, Behavior(), History(added=added, removed=removed), NOW)
    assert min(wanted, present) <= count <= max(wanted, present)


@given(wanted=counts, present=counts, past=changes)
def test_a_window_only_ever_damps(wanted: int, present: int, past: tuple[Change, ...]) -> None:
    count = behavior.stabilized(wanted, present, Behavior(), History(recommended=past), NOW)
    assert min(wanted, present, *(c.count for c in past)) <= count <= max(wanted, present, *(c.count for c in past))


def test_remembering_keeps_the_newest_of_a_value_and_forgets_the_old() -> None:
    history = History(recommended=(ago(5000, 1), ago(20, 7), ago(10, 3)))
    assert behavior.recommended(history, 7, NOW).recommended == (ago(10, 3), Change(NOW, 7))
    assert behavior.scaled(history, 3, 5, NOW).added == (Change(NOW, 2),)
    assert behavior.scaled(history, 5, 3, NOW).removed == (Change(NOW, 2),)
    assert behavior.scaled(history, 3, 3, NOW) is history
