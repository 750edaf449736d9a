"""Pod counts while one revision replaces another."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sunfleet_api.scaling import Rollout
from sunfleet_operator.plan.rollout import Limits, Side, finished, step


def _old(replicas: int, usable: int | None = None, present: int | None = None) -> Side:
    return Side("old", replicas, replicas if present is None else present, replicas if usable is None else usable)


def _new(replicas: int, usable: int | None = None) -> Side:
    return Side("new", replicas, replicas, replicas if usable is None else usable)


CASES = {
    "a first revision starts whole": (3, Limits(1, 0), _new(0), [], {"new": 3}),
    "one more pod starts beside the old one": (1, Limits(1, 0), _new(0), [_old(1)], {"new": 1, "old": 1}),
    "the old one stays while the new one does not serve": (
        1, Limits(1, 0), _new(1, 0), [_old(1)], {"new": 1, "old": 1},
    ),
    "the old one goes once the new one serves": (1, Limits(1, 0), _new(1), [_old(1)], {"new": 1, "old": 0}),
    "without surge the old one stops first": (1, Limits(0, 1), _new(0), [_old(1)], {"new": 0, "old": 0}),
    "without surge a terminating pod still takes its place": (
        1, Limits(0, 1), _new(0), [_old(0, 0, present=1)], {"new": 0, "old": 0},
    ),
    "without surge the new one starts when the old one has gone": (
        1, Limits(0, 1), _new(0), [_old(0, 0, present=0)], {"new": 1, "old": 0},
    ),
    "a large pool moves pod by pod": (4, Limits(1, 0), _new(1), [_old(4)], {"new": 1, "old": 3}),
    "and then takes the next one": (4, Limits(1, 0), _new(1), [_old(3)], {"new": 2, "old": 3}),
    "pods that do not serve go first": (2, Limits(1, 0), _new(1), [_old(2, 1)], {"new": 1, "old": 1}),
    "an old pod that does not serve is kept while the new one does not either": (
        1, Limits(1, 0), _new(1, 0), [_old(1, 0)], {"new": 1, "old": 1},
    ),
    "zero wanted empties all": (0, Limits(1, 0), _new(1), [_old(2)], {"new": 0, "old": 0}),
    "a half-finished revision goes before the one that serves": (
        2, Limits(1, 0), _new(1), [Side("half", 1, 1, 1), _old(1)], {"new": 1, "half": 0, "old": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("want", "limits", "target", "others", "expected"), CASES.values(), ids=CASES)
def test_step(want: int, limits: Limits, target: Side, others: list[Side], expected: dict[str, int]) -> None:
    assert step(want, limits, target, others) == expected


def test_pods_that_tasks_still_read_from_are_kept() -> None:
    assert step(2, Limits(1, 0), _new(2), [_old(1)], keep=1) == {"new": 2, "old": 1}
    assert step(2, Limits(1, 0), _new(2), [_old(1)], keep=0) == {"new": 2, "old": 0}


@given(
    want=st.integers(0, 8), surge=st.integers(0, 4), unavailable=st.integers(0, 4), old=st.integers(0, 8),
    order=st.randoms(use_true_random=False),
)  # fmt: skip
@settings(max_examples=300)
def test_every_roll_out_ends_and_never_leaves_its_limits(
    want: int, surge: int, unavailable: int, old: int, order: object
) -> None:
    limits = Limits.of(Rollout(max_surge=surge, max_unavailable=unavailable), want)
    target, other = Side("new", 0), _old(old)
    for _ in range(100):
        counts = step(want, limits, target, [other])
        if old >= want:  # a pool that starts too small may not shrink, but cannot offer what it never had
            least = min(want - limits.unavailable, target.usable + other.usable)
            assert min(counts["new"], target.usable) + min(counts["old"], other.usable) >= least
        ceiling = max(want + limits.surge, other.replicas + target.replicas)
        assert counts["new"] + counts["old"] <= ceiling
        present = counts["old"] if limits.surge else max(counts["old"], other.present)
        target = replace(target, replicas=counts["new"], usable=counts["new"], present=counts["new"])
        other = Side("old", counts["old"], present if other.present != present else counts["old"], counts["old"])
        if finished(want, target, [other]) and other.present == 0:
            return
    pytest.fail(f"not finished: {target} {other}")


@pytest.mark.parametrize(
    ("surge", "unavailable", "want", "expected"),
    [
        (1, 0, 4, Limits(1, 0)),
        ("25%", 0, 4, Limits(1, 0)),
        ("25%", 0, 5, Limits(2, 0)),
        (0, "25%", 5, Limits(0, 1)),
        (0, "25%", 2, Limits(0, 1)),  # both round to nothing: one may be missing, or nothing would ever move
    ],
)
def test_percentages_round_as_in_a_deployment(
    surge: int | str, unavailable: int | str, want: int, expected: Limits
) -> None:
    assert Limits.of(Rollout(max_surge=surge, max_unavailable=unavailable), want) == expected
