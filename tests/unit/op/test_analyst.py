"""What is asked of Prometheus about canaries, and what becomes of its answers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sunfleet_api import metrics
from sunfleet_operator import promql
from sunfleet_operator.analyst import Analyst
from sunfleet_operator.figures import Figures
from sunfleet_operator.prometheus import UnreachableError
from sunfleet_operator.promql import Sample
from sunfleet_operator.scaler import NO_URL

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Source:
    """Remembers what it was asked."""

    def __init__(self, fault: bool = False) -> None:
        self.asked: list[Mapping[str, str]] = []
        self._fault = fault

    async def ask(self, queries: Mapping[str, str]) -> dict[str, Sequence[Sample]]:
        self.asked.append(queries)
        if self._fault:
            raise UnreachableError("http://prometheus: timed out")
        of = {"task": "maths", "revision": "new"}
        return {
            "requests": [
                Sample({**of, "outcome": "ok"}, 90), Sample({**of, "outcome": "failed"}, 10),
                Sample({**of, "task": "code", "outcome": "failed"}, 7),
            ],
            "seconds": [Sample(of, 45), Sample({**of, "revision": "old"}, 40)],
            "tokens": [Sample(of, 900), Sample({**of, "revision": "old"}, 800)],
        }  # fmt: skip


def _task(phase: str = "Progressing", ago: float = 120) -> dict[str, Any]:
    began = (NOW - timedelta(seconds=ago)).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {"canary": {"phase": phase, "startedAt": began}} if phase else {}
    return {"metadata": {"name": "maths", "namespace": "team"}, "spec": {}, "status": status}


async def test_figures_are_those_of_the_task_by_revision() -> None:
    found = await Analyst(Source(), {}, 60).measure(_task(), NOW)
    assert found is not None
    assert found.figures == {"new": Figures(100, 10, 45, 900), "old": Figures(0, 0, 40, 800)}
    assert found.of("new").candidate.error_percent == 10


@pytest.mark.parametrize(("ago", "window"), [(5, 60), (120, 120), (1e6, 3600)])
async def test_the_window_is_the_step_so_far_within_bounds(ago: float, window: int) -> None:
    source = Source()
    await Analyst(source, {}, 60).measure(_task(ago=ago), NOW)
    assert all(f"[{window}s]" in text for text in source.asked[0].values())


@pytest.mark.parametrize("phase", ["", "Verifying", "RolledBack"])
async def test_nothing_is_asked_while_no_canary_gets_requests(phase: str) -> None:
    source = Source()
    assert await Analyst(source, {}, 60).measure(_task(phase), NOW) is None
    assert source.asked == []


async def test_missing_metrics_are_a_fault_and_no_figures() -> None:
    silent = await Analyst(Source(fault=True), {}, 60).measure(_task(), NOW)
    assert silent is not None
    assert "Prometheus does not answer" in silent.fault
    nobody = await Analyst(None, {}, 60).measure(_task(), NOW)
    assert nobody is not None
    assert nobody.fault == NO_URL


def test_queries_select_known_metrics_of_this_installation_and_name_no_object() -> None:
    for text in promql.by_revision(60, {"cluster": "a"}).values():
        assert promql.named(text) <= metrics.OF_REVISIONS
        assert re.findall(r"\{.*?\}", text) == ['{cluster="a"}']
