"""Prefill-only tuning against full fine-tuning, on small real tasks with real generation.

``make bench-tuner``: about two hours on two idle cores; ``make bench-tuner QUICK=1``: five minutes, which show that it
runs and what a step costs, not how good the modules are. Stopped at any point, it goes on with the next cell.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tuner.cells import FULL, QUICK, Cell, Plan, cells, to_json
from tuner.report import bars, report

# A thread that waits for the other one burns CPU, unless told not to: those seconds would be nobody's work.
_STILL: Final = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}


def main() -> int:
    """Do what is missing, print table and bars; 1 when a cell failed, or, with --check, a bar was missed."""
    parser = argparse.ArgumentParser(prog="python -m tuner", description=__doc__)
    parser.add_argument("--base", type=Path, required=True, help="folder of the base model")
    parser.add_argument("--folder", type=Path, required=True, help="folder for modules and results")
    parser.add_argument("--quick", action="store_true", help="the five-minute part")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cells whose name holds this")
    parser.add_argument("--check", action="store_true", help="begin anew, and fail when a bar is missed")
    given = parser.parse_args()
    plan, folder = (QUICK, given.folder / "quick") if given.quick else (FULL, given.folder / "full")
    if given.check:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    for cell in missing(plan, folder, given.only):
        if not _do(cell, folder, given.base):
            return 1
    results = read(plan, folder)
    text = f"{datetime.now(UTC):%Y-%m-%d}\n\n{report(plan, results)}\n"
    (folder / "report.md").write_text(text)
    print(text)
    return 1 if given.check and any(bar.held is False for bar in bars(plan, results)) else 0


def missing(plan: Plan, folder: Path, only: str = "") -> Iterator[Cell]:
    """Cells without a result, told as they come."""
    wanted = [cell for cell in cells(plan) if only in cell.name]
    for number, cell in enumerate(wanted, start=1):
        if not _file(folder, cell).is_file():
            sys.stderr.write(f"[{number}/{len(wanted)}] {cell.name}\n")
            yield cell


def read(plan: Plan, folder: Path) -> dict[str, Any]:
    """The results there are, by the cells' names."""
    files = {cell.name: _file(folder, cell) for cell in cells(plan)}
    return {name: json.loads(file.read_text()) for name, file in files.items() if file.is_file()}


def _do(cell: Cell, folder: Path, base: Path) -> bool:
    began = time.monotonic()
    command = [sys.executable, "-W", "ignore", "-m", "tuner.work", "--folder", str(folder), "--base", str(base)]
    done = subprocess.run(
        command,
        input=json.dumps(to_json(cell)),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env=os.environ | _STILL,
    )
    if done.returncode:
        sys.stderr.write(f"{cell.name} failed with exit code {done.returncode}; run the same command to go on\n")
        return False
    draft = folder / f".{cell.name}.new"
    draft.write_text(json.dumps(json.loads(done.stdout.splitlines()[-1]) | {"seconds": time.monotonic() - began}))
    draft.rename(_file(folder, cell))
    return True


def _file(folder: Path, cell: Cell) -> Path:
    return folder / f"{cell.name}.json"


if __name__ == "__main__":
    sys.exit(main())
