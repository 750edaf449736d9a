"""The stages of a verb: order, times, and when a run counts as failed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import stages
from stages import Result, Stage

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(stages, "STATE", tmp_path)
    return tmp_path


def play(monkeypatch: pytest.MonkeyPatch, seconds: float = 1, **codes: int) -> list[str]:
    """Stages that only pretend; the names of those that ran."""
    ran: list[str] = []

    def run(stage: Stage, *, quiet: bool) -> Result:
        del quiet
        ran.append(stage.target)
        return Result(stage.target, stage.tier, seconds, codes.get(stage.target.replace("-", "_"), 0))

    monkeypatch.setattr(stages, "run_stage", run)
    return ran


def test_every_stage_is_a_target_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {stage.target for verb in stages.VERBS.values() for stage in verb} <= targets


def test_the_tiers_of_a_test_run_have_budgets_that_fit_into_what_it_may_take() -> None:
    tiers = {stage.tier for stage in stages.VERBS["test"]}
    assert sum(stages.BUDGET_MINUTES[tier] for tier in tiers) <= stages.LIMIT_MINUTES


def test_what_is_lacking_is_said_before_anything_is_installed() -> None:
    order = [stage.target for stage in stages.SETUP]
    assert order.index("preflight") < min(order.index("packages"), order.index("programs"), order.index("engine-env"))


def test_a_failed_set_up_ends_the_run_and_a_failed_suite_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = play(monkeypatch, cluster_up=1)
    assert stages.main(["test"]) == 1
    assert ran[-1] == "cluster-up"
    ran = play(monkeypatch, unit=1)
    assert stages.main(["test"]) == 1
    assert ran[-1] == "tuner-claims"


def test_a_slow_tier_is_told_and_fails_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    play(monkeypatch, seconds=400)
    assert stages.main(["test"]) == 0
    assert "over budget: tier 'set-up'" in capsys.readouterr().out


@pytest.mark.parametrize(("verb", "minutes", "code"), [("test", 69, 0), ("test", 71, 1), ("demo", 71, 0)])
def test_only_a_whole_test_run_fails_for_being_slow(
    verb: str, minutes: float, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stages.verdict(verb, minutes * 60, [Result("unit", "tuner", 1, 0)]) == code
    assert ("too slow: 71.0 min of 70" in capsys.readouterr().out) == bool(code)


def test_an_interrupted_run_says_so_and_keeps_the_times_of_the_last(
    monkeypatch: pytest.MonkeyPatch, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    play(monkeypatch)
    assert stages.main(["demo"]) == 0
    kept = (state / "times" / "demo.json").read_text()
    assert [stage["code"] for stage in json.loads(kept)["stages"]] == [0] * len(stages.VERBS["demo"])

    def interrupted(_stage: Stage, *, quiet: bool) -> Result:
        del quiet
        raise KeyboardInterrupt

    monkeypatch.setattr(stages, "run_stage", interrupted)
    assert stages.main(["demo"]) == 130
    assert "'make demo' goes on" in capsys.readouterr().out
    assert (state / "times" / "demo.json").read_text() == kept


def test_a_stage_that_writes_to_a_log_shows_that_it_lives(
    monkeypatch: pytest.MonkeyPatch, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stages, "SIGN_OF_LIFE_SECONDS", 0.2)
    command = ["sh", "-c", "echo begun; echo 812 packages compiled; sleep 0.5; exit 3"]
    assert stages.run_quietly(command, "programs", state / "log") == 3
    assert "    programs, 0.0 min: 812 packages compiled\n" in capsys.readouterr().out


def test_wrong_usage_names_the_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert stages.main([]) == 2
    assert "setup|demo|test" in capsys.readouterr().out
