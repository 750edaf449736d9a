"""The tuner's bench: what it does in which order, and what its bars say of results."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tuner.__main__ import _do, missing, read
from tuner.cells import FULL, QUICK, ROWS, Measurement, Plan, Recipe, Training, cells, from_json, to_json
from tuner.report import above, at_most, bars, not_below, report

PLAN = Plan({"arith": Recipe(10, 4, 40)}, (0, 1), ("ft", "full", "lora"))
COST = {"cpu_seconds_per_step": 2.0, "peak_gib": 3.0, "weights_gib": 0.5, "steps": 60, "loss": 0.1}


def results(**right: int) -> dict[str, dict[str, Any]]:
    """Right answers of 40 by row, with the same cost everywhere but for LoRA's."""
    found: dict[str, dict[str, Any]] = {}
    for cell in cells(PLAN):
        if isinstance(cell, Training):
            cheap = {"cpu_seconds_per_step": 1.8, "peak_gib": 1.5} if cell.method == "lora" else {}
            found[cell.name] = COST | cheap
        else:
            count = right.get(f"{cell.row.prefill}_{cell.row.decode}".replace("-", "_"), 0)
            found[cell.name] = {"right": [place < count for place in range(40)]}
    return found


@pytest.mark.parametrize("plan", [FULL, QUICK, PLAN])
def test_modules_come_before_what_measures_them_and_every_cell_has_its_name(plan: Plan) -> None:
    found = cells(plan)
    names = [cell.name for cell in found]
    assert len(set(names)) == len(names)
    for place, cell in enumerate(found):
        assert from_json(json.loads(json.dumps(to_json(cell)))) == cell
        if isinstance(cell, Measurement):
            trained = {one.method for one in found[:place] if isinstance(one, Training) and one.task == cell.task}
            assert set(cell.row.needs) <= trained
    assert {row.label for row in ROWS} == {cell.row.label for cell in cells(FULL) if isinstance(cell, Measurement)}


def test_a_stopped_bench_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    first, second, *rest = cells(PLAN)
    (tmp_path / f"{first.name}.json").write_text('{"steps": 1}')
    (tmp_path / f".{second.name}.new").write_text('{"steps"')
    assert list(missing(PLAN, tmp_path)) == [second, *rest]
    assert read(PLAN, tmp_path) == {first.name: {"steps": 1}}
    assert {cell.name.split("-")[1] for cell in missing(PLAN, tmp_path, "arith-1-")} == {"1"}


def test_the_cpu_seconds_of_a_cell_are_work_and_not_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, str] = {}

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        seen.update(options["env"])
        return subprocess.CompletedProcess(command, 0, '{"steps": 1}\n')

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setenv("PATH", "/somewhere")
    cell = cells(PLAN)[0]
    assert _do(cell, tmp_path, tmp_path)
    assert (seen["OMP_WAIT_POLICY"], seen["PATH"]) == ("PASSIVE", "/somewhere")
    assert read(PLAN, tmp_path)[cell.name]["steps"] == 1


def test_the_table_pools_seeds_and_compares_costs() -> None:
    text = report(PLAN, results(ft_ft=20, full_base=20, lora_base=22, ft_base=0))
    assert "| Full-FT | 50.0 % (39-61) |" in text
    assert "| naive sharing | 0.0 % (0-5) |" in text
    assert "| lora | 60 steps of 1.80 s (0.90), 1.50 GiB (0.50) |" in text
    assert "QSUN, 4-bit decoder |" not in text, "rows that were not measured are no zeros"


def test_rows_are_compared_on_seeds_that_every_row_has_answered() -> None:
    found = results(ft_ft=20, full_base=20, lora_base=22, ft_base=0)
    del found["arith-1-eval-lora-base"]
    text = report(PLAN, found)
    assert "| Full-FT | 50.0 % (35-65) |" in text, "40 questions, not 80"
    assert "Seeds that were measured whole: arith 1 of 2." in text


def test_bars_say_held_missed_or_not_shown() -> None:
    good = {bar.claim: bar.held for bar in bars(PLAN, results(ft_ft=20, full_base=19, lora_base=22, ft_base=1))}
    assert good.pop("arith: QSUN, 4-bit decoder is not below SUN not re-tuned") is None
    assert good.pop("arith: QSUN, 3-bit decoder is above SUN not re-tuned") is None
    assert set(good.values()) == {True}
    bad = results(ft_ft=20, full_base=8, lora_base=20, ft_base=20)
    for name, result in bad.items():
        if name.endswith("-full"):
            result.update(cpu_seconds_per_step=2.4, peak_gib=3.6)
    verdicts = {bar.claim: bar.held for bar in bars(PLAN, bad)}
    assert [claim for claim, held in verdicts.items() if held is False] == [
        "arith: SUN full is not below Full-FT",
        "arith: a step of full takes at most 1.15 of Full-FT's",
        "arith: full needs at most Full-FT's memory and the decoder's weights",
    ]
    assert verdicts["arith: naive sharing is clearly below Full-FT"] is None


@pytest.mark.parametrize(
    ("found", "noise", "held"), [(1.0, 0.1, True), (1.2, 0.1, None), (1.2, 0, False), (1.3, 0.1, False)]
)
def test_what_lies_within_the_noise_above_a_bound_decides_nothing(
    found: float, noise: float, held: bool | None
) -> None:
    assert at_most(found, 1.15, noise) is held


def test_a_few_steps_decide_about_memory_and_not_about_time() -> None:
    few = results(ft_ft=20, full_base=20, lora_base=20)
    for name, result in few.items():
        if name.endswith(("-ft", "-full", "-lora")):
            result.update(steps=8, **({"cpu_seconds_per_step": 4.0, "peak_gib": 4.5} if name.endswith("-full") else {}))
    found = {bar.claim: bar.held for bar in bars(PLAN, few)}
    assert found["arith: a step of full takes at most 1.15 of Full-FT's"] is None
    assert found["arith: full needs at most Full-FT's memory and the decoder's weights"] is False


def test_chance_decides_nothing() -> None:
    ours, theirs = [True] * 11 + [False] * 7, [False] * 11 + [True] * 7
    assert not_below("", theirs, ours).held is True
    assert above("", ours, theirs).held is None
    assert above("", [False] * 20, [True] * 20).held is False
    assert not_below("", [False] * 20, [True] * 20).held is False
    assert not_below("", [], [True]).held is None
    assert not_below("", [False] * 20, [False] * 20).held is None, "two modules that learnt nothing are not equals"
