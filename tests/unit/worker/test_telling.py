"""Progress lines: which log-probabilities they carry."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from sunfleet_worker.frontend.telling import add_row
from sunfleet_worker.handover import SeedLogprobs


def entry(**values: tuple[float, int]) -> dict[int, Any]:
    """Log-probability and rank by token id, as the engine merges them: the sampled token first."""
    return {int(t[1:]): SimpleNamespace(logprob=logprob, rank=rank) for t, (logprob, rank) in values.items()}


@pytest.mark.parametrize(
    ("given", "alternatives", "row"),
    [
        (entry(t7=(-0.1, 1)), 0, ([7], 1)),
        (entry(t7=(-3.0, 9), t8=(-0.1, 1), t9=(-0.2, 2)), 2, ([7, 8, 9], 9)),
        (entry(t7=(-0.2, 2), t8=(-0.1, 1)), 2, ([7, 8, 7], 2)),
        (entry(t7=(-0.1, 1), t8=(-0.2, 2)), 2, ([7, 7, 8], 1)),
        (entry(t7=(-0.2, 2), t8=(-0.1, 1)), -1, ([7, 8, 7], 2)),
    ],
    ids=["no alternatives", "sampled another", "sampled the second", "sampled the best", "whole vocabulary"],
)
def test_a_row_is_as_wide_as_the_engines_own(
    given: dict[int, Any], alternatives: int, row: tuple[list[int], int]
) -> None:
    rows = SeedLogprobs([], [], [])
    add_row(rows, 7, given, alternatives)
    assert (rows.token_ids, rows.ranks) == ([row[0]], [row[1]])
    assert rows.logprobs == [[given[token].logprob for token in row[0]]]


def test_what_a_grammar_forbids_is_still_json() -> None:
    rows = SeedLogprobs([], [], [])
    add_row(rows, 7, entry(t7=(-0.1, 1), t8=(float("-inf"), 2)), 2)
    assert json.loads(json.dumps(rows.to_wire(), allow_nan=False))["logprobs"][0][2] < -9999
