"""The comparison of two flows: what is told as a ratio, and how sure it is."""

from __future__ import annotations

import random

import pytest

from handover.statistics import Estimate, compare, estimate


def test_the_ratio_is_that_of_neighbours_whatever_both_suffer() -> None:
    """A load that comes and goes hits both alike: medians apart differ, neighbours do not."""
    loads = [1.0, 9.0, 1.2, 7.0, 1.1, 8.0, 1.3]
    found = compare([([2.0 * load for load in loads], loads)])
    assert found.ratio == Estimate(2.0, 2.0, 2.0)
    assert (found.ours, found.theirs, found.more.value) == (2 * 1.3, 1.3, 1.3)


def test_the_interval_holds_the_ratio_and_shrinks_with_the_number_of_requests() -> None:
    rng = random.Random(1)  # noqa: S311 - test data
    few, many = ([rng.gauss(1.01, 0.05) for _ in range(count)] for count in (20, 400))
    widths = []
    for ours in (few, many):
        found = compare([(ours, [1.0] * len(ours))]).ratio
        assert found.low <= found.value <= found.high
        widths.append(found.high - found.low)
    assert widths[1] < widths[0] / 2
    assert found.low < 1.01 < found.high


def test_starts_that_differ_widen_the_interval_as_many_requests_of_few_starts_do_not() -> None:
    """Two starts of a hundred requests that agree within, and not with each other, leave open which one is right."""
    found = estimate([[value] * 100 for value in (0.95, 1.05)])
    assert (round(found.value, 6), found.low, found.high) == (1.0, 0.95, 1.05)


def test_both_series_are_of_one_length() -> None:
    with pytest.raises(ValueError, match="argument 2"):
        compare([([1.0, 2.0], [1.0])])
