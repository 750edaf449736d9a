"""A soak passes only when clients, router and engines agree: each kind of disagreement is found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sunfleet_routerbench.ledger import LOST, Soaked, problems

PAGE = """# HELP sunfleet_router_requests_total Requests
sunfleet_router_requests_total{code="ok",task="mock"} 101.0
sunfleet_router_requests_total{code="engine_busy",task="mock"} 2.0
sunfleet_router_requests_total{code="client_gone",task="mock"} 3.0
sunfleet_router_requests_total{code="client_gone",task=""} 1.0
sunfleet_router_in_flight_requests{task="mock"} 0.0
sunfleet_router_queue_depth{task="mock"} 0.0
"""
GOOD = Soaked(
    outcomes={"ok": 100, "left": 5, "error engine_busy": 1, "error event engine_busy": 1}, metrics=PAGE,
    prefills={"running": 0, "plain": 0, "complete": 110}, decodes={"running": 0, "plain": 0, "complete": 101},
    memory=[50.0] * 8, files=(20, 80), most_files=100,
)  # fmt: skip


def test_a_run_that_adds_up_has_no_problems() -> None:
    assert problems(GOOD) == []


@pytest.mark.parametrize("outcome", LOST)
def test_a_request_that_is_lost_is_a_problem(outcome: str) -> None:
    assert any(outcome in problem for problem in problems(replace(GOOD, outcomes={**GOOD.outcomes, outcome: 1})))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metrics": PAGE.replace("101.0", "106.0")}, "whole answers"),
        ({"metrics": PAGE.replace("101.0", "99.0")}, "whole answers"),
        ({"metrics": PAGE.replace("3.0", "7.0")}, "clients leave"),
        ({"metrics": PAGE.replace('engine_busy",task="mock"} 2', 'engine_busy",task="mock"} 9')}, "error engine_busy"),
        ({"outcomes": {**GOOD.outcomes, "error prefill_timeout": 1}}, "error prefill_timeout"),
        ({"metrics": PAGE.replace('flight_requests{task="mock"} 0', 'flight_requests{task="mock"} 1')}, "go back to 0"),
        ({"decodes": {**GOOD.decodes, "complete": 99}}, "decode engines completed"),
        ({"decodes": {**GOOD.decodes, "complete": 106}}, "decode engines completed"),
        ({"decodes": {**GOOD.decodes, "plain": 1}}, "without a hand-over"),
        ({"prefills": {**GOOD.prefills, "running": 1}}, "still run"),
        ({"memory": [50.0] * 4 + [60.0] * 4}, "memory grew"),
        ({"files": (20, 200)}, "open files"),
        ({"exit_code": 1}, "ended with 1"),
    ],
    ids=lambda value: str(value)[-40:],
)  # fmt: skip
def test_what_does_not_add_up_is_said(change: dict[str, object], words: str) -> None:
    assert any(words in problem for problem in problems(replace(GOOD, **change)))  # type: ignore[arg-type]
