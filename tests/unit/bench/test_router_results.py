"""The figures that a benchmark of the router prints, and the bars that it holds them to."""

from __future__ import annotations

from typing import Any

import pytest

from sunfleet_routerbench import results, table
from sunfleet_routerbench.results import Measure
from sunfleet_routerbench.scenarios import SCENARIOS, Scenario


def said(**fields: Any) -> dict[str, Any]:
    base = {
        "requests": 600, "requests_per_s": 100.0, "chunks": 6000, "chunks_per_s": 1000.0, "cpu_s": 0.6, "rss_mb": 50.0,
        "ttft_ms": {"p50": 2.0, "p99": 9.0}, "gap_ms": {"p99": 22.0}, "total_ms": {"p50": 3.0, "p99": 8.0},
        "outcomes": {"ok": 600},
    }  # fmt: skip
    return base | fields


def measures(contender: str, scenario: str, *ones: dict[str, Any]) -> list[Measure]:
    return [Measure(contender, scenario, number, 0.0, one) for number, one in enumerate(ones)]


def test_a_figure_is_the_median_of_the_rounds_with_its_range() -> None:
    runs = measures("ours", "a", *(said(requests_per_s=rate) for rate in (3000.0, 1000.0, 1100.0)))
    assert str(results.spread(runs, "ours", "a", results.REQUESTS)) == "1,100 [1,000..3,000]"
    assert results.spread(runs, "haproxy", "a", results.REQUESTS) is None


def test_cpu_is_per_request_and_per_thousand_chunks() -> None:
    assert results.CPU_REQUEST.read(said()) == pytest.approx(1.0)
    assert results.CPU_CHUNKS.read(said()) == pytest.approx(100.0)
    assert results.CPU_CHUNKS.read(said(cpu_s=None)) is None
    assert results.CPU_CHUNKS.read(said(chunks=0)) is None


def test_what_is_added_is_taken_off_the_floor_of_the_same_number_of_legs() -> None:
    runs = [
        *measures("direct", "c", said(ttft_ms={"p50": 0.5})),
        *measures("direct-plain", "c", said(ttft_ms={"p50": 0.25})),
        *measures("ours", "c", said()), *measures("haproxy", "c", said()),
    ]  # fmt: skip
    assert results.above_floor(runs, "ours", "c", results.TTFT) == 1.5
    assert results.above_floor(runs, "haproxy", "c", results.TTFT) == 1.75
    assert results.above_floor(runs, "direct", "c", results.TTFT) is None


@pytest.mark.parametrize(("rate", "held"), [(150.0, True), (149.0, False)])
def test_a_bar_is_a_ratio_to_the_peer(rate: float, held: bool) -> None:
    runs = [*measures("vllm-router", "a", said()), *measures("ours", "a", said(requests_per_s=rate))]
    (requests,) = [bar for bar in results.bars(runs) if "requests/s" in bar.what]
    assert (requests.wanted, requests.held) == (150.0, held)


def test_less_is_better_for_memory_gaps_and_added_time() -> None:
    runs = [
        *measures("direct", "c", said(ttft_ms={"p50": 0.5})), *measures("vllm-router", "c", said(cpu_s=1.0)),
        *measures("ours", "c", said(rss_mb=51.0, gap_ms={"p99": 21.0})),
    ]  # fmt: skip
    found = {bar.what.partition(",")[0]: bar.held for bar in results.bars(runs)}
    assert found == {
        "c: gap p99 ms": True, "c: CPU ms/1000 chunks": True, "c: peak RSS MB": False, "c: added TTFT p50 ms": False,
    }  # fmt: skip


def test_failures_are_shown_beside_the_figures() -> None:
    runs = measures("ours", "a", said(outcomes={"ok": 5, "stuck": 1}), said(outcomes={"stuck": 2}))
    scenario = next(one for one in SCENARIOS if one.name == "a")
    (_, rows), *_ = table.tables([scenario], runs)
    assert rows[1][0] == "ours"
    assert rows[1][-1] == "stuck: 3"


def test_paced_streams_begin_one_after_the_other_and_are_all_there_when_the_window_opens() -> None:
    flags = Scenario("x", "", clients=9, tokens=50, stream=True, pace=20).load_flags(0.5)
    value = dict(zip(flags[::2], flags[1::2], strict=False))
    assert float(value["-stagger"]) == 1.0
    assert float(value["-warm"]) >= 2.0
    assert float(value["-seconds"]) == 3.0


def test_a_measurement_whose_requests_failed_does_not_count_as_done() -> None:
    runs = [
        *measures("ours", "a", said()), *measures("ours", "b", said(outcomes={"ok": 5, "error engine_busy": 1})),
        *measures("haproxy", "c", said(requests=0, outcomes={})),
    ]  # fmt: skip
    assert results.worthless(runs) == ["ours (b)", "haproxy (c)"]
