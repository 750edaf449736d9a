"""Runs the rest of this folder where torch is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from whole_tree import run

ROOT = Path(__file__).resolve().parents[3]
STATE = Path(os.environ.get("SUNFLEET_STATE") or Path.home() / ".local/state/sunfleet")


@pytest.mark.timeout(600)
def test_the_tuner_passes_its_tests_in_the_engine_environment() -> None:
    python = STATE / "engine/bin/python"
    assert python.is_file(), f"no engine environment at {python}: run 'make engine-env'"
    done = run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(Path(__file__).parent)], seconds=580, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
