"""What ``top`` makes of two looks at the routers' metrics."""

from __future__ import annotations

import pytest

from sunfleet_api import metrics
from sunfleet_cli.live import Look, Now, Pool, Task, now, parsed, sums

TEXT = """# HELP sunfleet_router_in_flight_requests Requests being served.
# TYPE sunfleet_router_in_flight_requests gauge
sunfleet_router_in_flight_requests{task="maths"} 2.0
# HELP sunfleet_router_requests_total Requests by outcome.
# TYPE sunfleet_router_requests_total counter
sunfleet_router_requests_total{code="ok",task="maths"} 5.0
sunfleet_router_requests_total{code="queue_full",task="maths"} 1.0
# TYPE sunfleet_router_decode_kv_capacity_tokens gauge
sunfleet_router_decode_kv_capacity_tokens{decoder="team/base"} 4000.0
# TYPE sunfleet_router_synced gauge
sunfleet_router_synced 1.0
"""


def router(**figures: float) -> dict[tuple[str, str], float]:
    """Series of one router, of one task and one decoder."""
    per_decoder = {"KV_RESERVED", "KV_CAPACITY", "KV_QUEUED", "DECODE_ENDPOINTS"}
    found = {"IN_FLIGHT": 0.0, "KV_CAPACITY": 0.0} | figures
    return {(getattr(metrics, key), "team/base" if key in per_decoder else "maths"): v for key, v in found.items()}


def look(at: float, *routers: dict[tuple[str, str], float]) -> Look:
    return Look(at, {f"router-{number}": series for number, series in enumerate(routers)})


def only(found: Now) -> tuple[Task, Pool]:
    (task,), (pool,) = found.tasks, found.pools
    return task, pool


def test_series_are_summed_over_labels_that_nobody_asks_about() -> None:
    found = parsed(TEXT)
    assert found["sunfleet_router_requests_total", "maths"] == 6
    assert found[metrics.KV_CAPACITY, "team/base"] == 4000
    assert not [key for key in found if key[0] == metrics.SYNCED]


def test_what_is_no_metrics_is_refused() -> None:
    with pytest.raises(ValueError, match="<html"):
        parsed("<html>a login page</html>")


def test_rates_of_all_routers_are_added_and_what_each_sees_whole_is_not() -> None:
    before = router(OUTPUT_TOKENS=100, PROMPT_TOKENS=0, REQUESTS_ENDED=7, TTFT_COUNT=1, TTFT_SECONDS=9)
    after = router(
        OUTPUT_TOKENS=300, PROMPT_TOKENS=50, REQUESTS_ENDED=9, TTFT_COUNT=3, TTFT_SECONDS=10, IN_FLIGHT=2,
        QUEUE_DEPTH=1, PREFILL_BACKLOG=70, PREFILL_ENDPOINTS=3, KV_RESERVED=500, KV_CAPACITY=4000, KV_QUEUED=60,
        DECODE_ENDPOINTS=2,
    )  # fmt: skip
    task, pool = only(now(look(10, before, before), look(12, after, after)))
    assert task == Task("maths", 2.0, 50.0, 200.0, 0.5, 4, 2, 140, 3)
    assert pool == Pool("team/base", 2, 1000, 4000, 120)
    assert pool.cells() == ["team/base", "2", "1000", "4000", "25%", "120"]
    assert sums([task, task])[:4] == ["all", "4.0", "100.0", "400.0"]


def test_a_router_that_was_restarted_counts_from_zero_and_a_new_one_not_at_all_yet() -> None:
    found = now(look(0, router(OUTPUT_TOKENS=900)), look(1, router(OUTPUT_TOKENS=30), router(OUTPUT_TOKENS=5000)))
    task, _ = only(found)
    assert task.output_tokens_per_second == 30
    assert found.routers == 2


def test_without_a_stream_there_is_no_time_to_a_token() -> None:
    task, pool = only(now(look(0, router()), look(1, router())))
    assert task.ttft_seconds is None
    assert task.cells()[4] == ""
    assert pool.cells()[4] == ""
