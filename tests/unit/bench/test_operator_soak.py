"""The operator's soak fails on what grows, and says what it is."""

from __future__ import annotations

from collections import Counter

from operator_scale.soak import MODELS, OBJECTS, RSS_MEGABYTES, Sample, verdict


def _samples(*rss: float, each: int = 0) -> list[Sample]:
    return [Sample(mb, Counter({"dict": 50_000 + number * each, "tuple": 9_000})) for number, mb in enumerate(rss)]


def test_what_grows_in_the_first_round_alone_is_no_leak() -> None:
    assert verdict(_samples(90, 120, 121, 119, 122)) == []


def test_memory_that_grows_is_told() -> None:
    (said,) = verdict(_samples(90, 120, 125, 120 + RSS_MEGABYTES + 1))
    assert said == "RSS grew from 120.0 to 129.0 MB"


def test_a_few_objects_for_each_sunmodel_of_a_round_are_a_leak_and_named_by_type() -> None:
    (said,) = verdict(_samples(90, 120, 120, 120, 120, each=3 * MODELS))
    assert "dict +450" in said
    assert 3 * 3 * MODELS > OBJECTS


def test_too_few_rounds_prove_nothing() -> None:
    assert "more minutes" in verdict(_samples(90, 120, 120))[0]
