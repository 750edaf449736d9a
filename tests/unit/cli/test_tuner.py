"""``tune``, ``eval``, ``quantize``: the tuner's own words, shown and completed here, and handed over as they are."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

import sunfleet_tuner.__main__ as tuner
from sunfleet_cli.main import cli
from sunfleet_tuner.config import TuneConfig

VERBS = ("tune", "eval", "quantize")
TUNE = ["--decoder", "base", "--data", "rows.jsonl", "--output", "maths"]


def completions(*words: str, incomplete: str = "") -> set[str]:
    found = ShellComplete(cli, {}, "sunfleet", "_SUNFLEET_COMPLETE").get_completions(list(words), incomplete)
    return {item.value if item.type == "plain" else item.type for item in found}


def test_help_shows_every_setting_and_waits_for_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("torch", "transformers"):
        monkeypatch.setitem(sys.modules, module, None)
    shown = CliRunner().invoke(cli, ["tune", "--help"])
    assert shown.exit_code == 0, shown.output
    for name in TuneConfig.model_fields:
        assert f"--{name.replace('_', '-')} " in shown.output
    assert "[lora|full]" in shown.output
    assert "BASE PACKED" in CliRunner().invoke(cli, ["quantize", "--help"]).output
    listed = CliRunner().invoke(cli, ["--help"]).output
    assert all(f"  {verb} " in listed for verb in VERBS)


def test_words_and_values_are_completed() -> None:
    assert completions(incomplete="tu") == {"tune"}
    assert completions("tune", incomplete="--lear") == {"--learning-rate"}
    assert completions("tune", "--seed", "1", incomplete="--gradient") == {"--gradient-checkpointing"}
    assert completions("tune", "--method") == {"lora", "full"}
    assert completions("tune", "--data", incomplete="tr") == {"file"}
    assert completions("eval", "--task") == {"arith", "sorting", "toolcall"}
    assert completions("quantize", "--bits") == {"4", "8"}
    assert completions("quantize", incomplete="ba") == {"file"}


@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.parametrize("verb", VERBS)
def test_the_tuner_gets_the_words_as_they_are_and_its_exit_code_counts(
    monkeypatch: pytest.MonkeyPatch, verb: str, code: int
) -> None:
    given: list[Any] = []

    def main(words: list[str], program: str) -> int:
        given.append((words, program))
        return code

    monkeypatch.setattr(tuner, "main", main)
    words = ["--no-such-flag", "a b", "--", "-1"]
    assert CliRunner().invoke(cli, [verb, *words]).exit_code == code
    assert given == [([verb, *words], "sunfleet")]


def test_wrong_words_are_refused_by_the_tuner_under_the_commands_name(capfd: pytest.CaptureFixture[str]) -> None:
    done = CliRunner().invoke(cli, ["eval", "--decoder", "base"])
    assert done.exit_code == 2
    assert "usage: sunfleet eval" in done.output
    assert "--task --data --lm-eval is required" in done.output
    assert not capfd.readouterr().err


@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_without_torch_a_verb_says_what_to_install(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    def main(_: list[str], program: str) -> int:
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr(tuner, "main", main)
    done = CliRunner().invoke(cli, ["tune", *TUNE])
    assert done.exit_code == 1
    assert f"{missing} is not installed, and `sunfleet tune` needs it: pip install 'sunfleet[tuner]'" in done.output


def test_the_tuner_itself_meets_the_missing_library_before_it_does_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    done = CliRunner().invoke(cli, ["tune", *TUNE])
    assert "`sunfleet tune` needs it" in done.output


def test_a_module_of_the_project_that_is_missing_is_no_matter_of_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    def main(_: list[str], program: str) -> int:
        raise ModuleNotFoundError("No module named 'sunfleet_tuner.tune'", name="sunfleet_tuner.tune")

    monkeypatch.setattr(tuner, "main", main)
    done = CliRunner().invoke(cli, ["tune", *TUNE])
    assert isinstance(done.exception, ModuleNotFoundError)
