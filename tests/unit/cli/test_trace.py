"""Traces: what is read, what is refused, what is made up."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev

import pytest

from sunfleet_cli.sim.trace import Pattern, Request, Shape, TraceError, made, read

AZURE = ["TIMESTAMP,ContextTokens,GeneratedTokens", "2024-05-10 00:00:02.5,400,30", "2024-05-10 00:00:00.0,100,9"]


def test_json_lines_come_back_in_the_order_of_time_from_zero() -> None:
    lines = ['{"time": 12, "task": "b", "prompt_tokens": 7, "output_tokens": 3}', "",
             '{"time": 10, "task": "a", "prompt_tokens": 5, "output_tokens": 0}']  # fmt: skip
    assert read(lines) == [Request(0.0, "a", 5, 1), Request(2.0, "b", 7, 3)]


def test_the_columns_of_azures_traces_are_known() -> None:
    assert read(AZURE) == [Request(0.0, "default", 100, 9), Request(2.5, "default", 400, 30)]


WRONG = {
    "nothing": ([], "empty"),
    "only a heading": (AZURE[:1], "no request"),
    "no JSON": (["{x"], "line 1"),
    "no prompt": (['{"time": 1, "output_tokens": 2}'], "prompt_tokens"),
    "an empty prompt": (['{"time": 1, "prompt_tokens": 0, "output_tokens": 2}'], "at least one token"),
    "an answer of less than nothing": (
        ['{"time": 1, "prompt_tokens": 1, "output_tokens": -2}'],
        "request 1: .* not less than none",
    ),
    "no time": (['{"time": "soon", "prompt_tokens": 1, "output_tokens": 2}'], "request 1"),
    "a field without an end": ([AZURE[0], f"{'1' * 200_000},1,1"], "line 2: field larger"),
    "JSON without an end": (['{"a": ' + "[" * 100_000], "line 1"),
    "an infinite time": (['{"time": "inf", "prompt_tokens": 1, "output_tokens": 2}'], "number"),
}


@pytest.mark.parametrize("case", WRONG, ids=str)
def test_what_cannot_be_read_is_named(case: str) -> None:
    lines, says = WRONG[case]
    with pytest.raises(TraceError, match=says):
        read(lines)


def test_what_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_bytes(b"\x1f\x8b\xff")
    with (tmp_path / "trace.csv").open() as lines, pytest.raises(TraceError, match=r"trace\.csv: this is no text"):
        read(lines, name="trace.csv")


def test_a_spreadsheets_byte_order_mark_is_no_part_of_a_column() -> None:
    assert read(["\ufefftime,task,prompt_tokens,output_tokens", "0,maths,10,5"]) == [Request(0, "maths", 10, 5)]


def test_times_in_milliseconds_are_noticed() -> None:
    rows = [f'{{"time": {at}, "prompt_tokens": 1, "output_tokens": 2}}' for at in (0, 1e12)]
    with pytest.raises(TraceError, match="in seconds"):
        read(rows)


def test_a_list_is_no_name_of_a_task() -> None:
    with pytest.raises(TraceError, match="request 1: task or model or Model is a list"):
        read(['{"time": 0, "task": ["x"], "prompt_tokens": 10, "output_tokens": 5}'])


def test_made_traffic_is_the_same_for_a_seed_and_has_its_rate_and_its_skew() -> None:
    shape = Shape(tasks=4, zipf=1.0, rate=20, seconds=3000, calm_seconds=60, burst_seconds=15)
    first = made(shape, seed=3)
    assert first == made(shape, seed=3) != made(shape, seed=4)
    assert len(first) == pytest.approx(20 * 3000, rel=0.15)
    counts = Counter(one.task for one in first)
    assert counts["task-01"] / counts["task-04"] == pytest.approx(4, rel=0.35)
    assert [one.at for one in first] == sorted(one.at for one in first)
    assert sum(one.prompt for one in first) / len(first) == pytest.approx(shape.prompt_tokens, rel=0.05)


@pytest.mark.parametrize("pattern", ["bursts", "waves", "clusters"])
def test_every_pattern_keeps_its_rate(pattern: Pattern) -> None:
    shape = Shape(pattern=pattern, tasks=3, rate=20, seconds=3000, calm_seconds=60, burst_seconds=15, wave_seconds=300)
    found = made(shape, seed=5)
    assert len(found) == pytest.approx(20 * 3000, rel=0.15)
    assert found == made(shape, seed=5)


def test_clusters_vary_more_than_chance_and_waves_swing() -> None:
    plain = Shape(tasks=1, rate=10, seconds=4000, wave_seconds=1000)
    gaps = [b.at - a.at for a, b in pairwise(made(replace(plain, pattern="clusters"), seed=1))]
    assert pstdev(gaps) / fmean(gaps) == pytest.approx(2.0, rel=0.1)
    minutes = Counter(int(one.at / 50) for one in made(replace(plain, pattern="waves"), seed=1))
    assert max(minutes.values()) > 4 * min(minutes.values())
