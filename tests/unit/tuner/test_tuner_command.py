"""The ``sunfleet`` command's verbs where torch is: a base becomes a 4-bit decoder, a module for it, a measured pair."""

from __future__ import annotations

import json
from pathlib import Path

import click
from click.testing import CliRunner

from sunfleet_cli.commands.tuner import evaluate, quantize, tune
from sunfleet_tuner.checkpoint import read_meta
from sunfleet_tuner.weights import describe
from tiny_models import tiny_checkpoint

RECORDS = [{"prompt": f"w{30 + n} w{40 + n}", "completion": f"w{30 + n} w7"} for n in range(24)]


def run(command: click.Command, *words: object) -> str:
    done = CliRunner().invoke(command, [str(word) for word in words], prog_name="sunfleet", catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_quantize_tune_and_eval_follow_each_other(tmp_path: Path) -> None:
    base, packed, module, data = (tmp_path / name for name in ("base", "packed", "maths", "rows.jsonl"))
    tiny_checkpoint(base)
    data.write_text("\n".join(json.dumps(record) for record in RECORDS))
    run(quantize, base, packed, "--group-size", 16)
    said = run(
        tune, "--decoder", packed, "--init", base, "--data", data, "--output", module, "--precision", "fp32",
        "--max-steps", 2, "--rank", 2, "--golden-prompts", 0,
    )  # fmt: skip
    assert f"made {module}" in said
    assert read_meta(module).tuned_against == describe(packed).digest
    result = tmp_path / "result.json"
    pair = ("--decoder", packed, "--adapter", module, "--base", base)
    assert " right" in run(evaluate, *pair, "--data", data, "--rows", 3, "--max-tokens", 3, "--output", result)
    assert json.loads(result.read_text())["total"] == 3


def test_what_the_tuner_refuses_is_the_commands_failure(tmp_path: Path) -> None:
    done = CliRunner().invoke(quantize, [str(tmp_path / "none"), str(tmp_path / "packed")])
    assert done.exit_code == 1
    assert f"{tmp_path / 'none'} cannot be quantised" in done.output
