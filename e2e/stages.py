"""Runs the stages of a verb in order, shows how long each takes, and fails when the whole takes too long.

    python3 e2e/stages.py demo|test|setup

Standard library only: on a new machine it runs before anything is installed. The times of the last run stay in
``$SUNFLEET_STATE/times/VERB.json``; ``make bench-times`` copies them, dated, into ``bench/results/``. A tier that
passes its share is told; only the whole of ``test`` fails for being slow: a loaded machine makes now this tier slow and
now that one, and whoever sees the demo's answer on a slow line has what was asked for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STATE = Path(os.environ.get("SUNFLEET_STATE") or Path.home() / ".local/state/sunfleet")


@dataclass(frozen=True)
class Stage:
    """One make target. Stages with the same ``tier`` share a budget; neighbours in one ``group`` run side by side."""

    target: str
    tier: str
    group: str = ""


@dataclass
class Result:
    """How one stage went: its time in seconds and its exit code."""

    target: str
    tier: str
    seconds: float
    code: int


SIGN_OF_LIFE_SECONDS = 30.0  # between lines about a stage that writes to a log

LIMIT_MINUTES = 70  # for all of ``test`` on a new machine with two cores

# What each tier should take of it.
BUDGET_MINUTES = {
    "set-up": 20,
    "static, unit, API server": 18,
    "cluster": 3,
    "fleet": 4,
    "exactness": 9,
    "operator": 4,
    "router": 3,
    "autoscaling": 4,
    "tuner": 5,
    "demo": 10,
}

# The cluster's programs are compiled (CPU) while the engine's environment is downloaded (network).
SETUP = (
    Stage("venv", "set-up"),
    Stage("preflight", "set-up"),
    Stage("packages", "set-up"),
    Stage("programs", "set-up", group="downloads"),
    Stage("engine-env", "set-up", group="downloads"),
    Stage("models", "set-up"),
    Stage("cluster-up", "set-up"),
    Stage("images", "set-up"),
    Stage("install", "set-up"),
)
VERBS = {
    "setup": SETUP,
    "demo": (*SETUP, Stage("demo-run", "demo")),
    "test": (
        *SETUP,
        Stage("suite-images", "set-up"),
        Stage("check", "static, unit, API server"),
        Stage("unit", "static, unit, API server"),
        Stage("apiserver-short", "static, unit, API server"),
        Stage("e2e-smoke", "cluster"),
        Stage("e2e-fleet", "fleet"),
        Stage("e2e-exactness-short", "exactness"),
        Stage("e2e-operator-short", "operator"),
        Stage("e2e-router", "router"),
        Stage("e2e-autoscaling-short", "autoscaling"),
        Stage("tuner-claims", "tuner"),
    ),
}


def run_stage(stage: Stage, *, quiet: bool) -> Result:
    """Runs one make target; a quiet one writes to a log and shows its last line now and then, its end when it fails."""
    log = STATE / "times" / f"{stage.target}.log"
    say(f"==> {stage.target}" + (f" (log: {log})" if quiet else ""))
    start = time.monotonic()
    command = ["make", "--no-print-directory", stage.target]
    if quiet:
        code = run_quietly(command, stage.target, log)
        if code:
            say(tail(log))
    else:
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
    seconds = time.monotonic() - start
    say(f"<== {stage.target}: {'ok' if code == 0 else f'FAILED (exit {code})'} in {seconds:.0f} s")
    return Result(stage.target, stage.tier, seconds, code)


def run_quietly(command: list[str], name: str, log: Path) -> int:
    """Exit code of a command whose output goes to ``log``."""
    start = time.monotonic()
    with log.open("wb") as out, subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT) as process:
        while True:
            try:
                return process.wait(SIGN_OF_LIFE_SECONDS)
            except subprocess.TimeoutExpired:
                say(f"    {name}, {(time.monotonic() - start) / 60:.1f} min: {tail(log, 1).strip()}")


def run_all(stages: tuple[Stage, ...]) -> list[Result]:
    """Runs set-up stages until one fails, and every later stage even when an earlier one failed."""
    results: list[Result] = []
    remaining = list(stages)
    while remaining:
        group = [s for s in remaining if s.group and s.group == remaining[0].group] or remaining[:1]
        remaining = [s for s in remaining if s not in group]
        run = partial(run_stage, quiet=len(group) > 1)
        with ThreadPoolExecutor(len(group)) as pool:
            results += pool.map(run, group)
        if any(r.code and r.tier == "set-up" for r in results):
            break
    return results


def over_budget(results: list[Result]) -> list[str]:
    """One sentence for each tier that took longer than its share."""
    spent: dict[str, float] = {}
    for result in results:
        spent[result.tier] = spent.get(result.tier, 0.0) + result.seconds
    return [
        f"tier {tier!r} took {seconds / 60:.1f} min, its share is {BUDGET_MINUTES[tier]} min"
        for tier, seconds in spent.items()
        if seconds > BUDGET_MINUTES[tier] * 60
    ]


def table(results: list[Result]) -> str:
    """The closing table: a line a stage and the sum."""
    width = max(len(r.target) for r in results)
    lines = [f"{r.target:<{width}}  {r.seconds:>7.1f} s  {'ok' if r.code == 0 else 'FAILED'}" for r in results]
    return "\n".join([*lines, f"{'total':<{width}}  {sum(r.seconds for r in results):>7.1f} s"])


def tail(path: Path, lines: int = 60) -> str:
    """The last lines of a log."""
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def say(text: str) -> None:
    """Prints at once, among what the stages print."""
    print(text, flush=True)


def keep_times(verb: str, wall: float, results: list[Result]) -> None:
    """Writes the times of a run; those of the last one stay when this one dies."""
    record = {
        "verb": verb,
        "date": time.strftime("%Y-%m-%d"),
        "wall_seconds": round(wall, 1),
        "stages": [asdict(r) for r in results],
    }
    unfinished = STATE / "times" / f"{verb}.json.new"
    unfinished.write_text(json.dumps(record, indent=2) + "\n")
    unfinished.replace(STATE / "times" / f"{verb}.json")


def verdict(verb: str, wall: float, results: list[Result]) -> int:
    """The exit code; says what failed and what was slow (``wall``: seconds of the whole run)."""
    for sentence in over_budget(results):
        say(f"over budget: {sentence}")
    failed = [r.target for r in results if r.code]
    if failed:
        say(f"failed: {', '.join(failed)}")
    slow = verb == "test" and wall > LIMIT_MINUTES * 60
    if slow:
        say(f"too slow: {wall / 60:.1f} min of {LIMIT_MINUTES}")
    return 1 if failed or slow else 0


def main(arguments: list[str]) -> int:
    """0: all is well; 1: a stage failed, or a test run was slow; 2: wrong usage; 130: interrupted."""
    if len(arguments) != 1 or arguments[0] not in VERBS:
        say(f"usage: stages.py {'|'.join(VERBS)}")
        return 2
    (verb,) = arguments
    (STATE / "times").mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    try:
        results = run_all(VERBS[verb])
    except KeyboardInterrupt:
        say(f"interrupted; 'make {verb}' goes on where it was")
        return 130
    wall = time.monotonic() - start
    say(table(results) + f"\nwall clock: {wall / 60:.1f} min")
    keep_times(verb, wall, results)
    return verdict(verb, wall, results)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
