"""Keeps the times of the last ``make demo`` and ``make test`` in ``bench/results/``, one dated JSON file a run.

    python3 bench/times.py [NOTE]

Standard library only. NOTE says what the machine had cached ("fresh clone, empty caches").
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
STATE = Path(os.environ.get("SUNFLEET_STATE") or Path.home() / ".local/state/sunfleet")


def main() -> int:
    runs = sorted((STATE / "times").glob("*.json"))
    if not runs:
        print("no times yet: run make demo or make test first", file=sys.stderr)
        return 1
    for run in runs:
        record = json.loads(run.read_text())
        record |= {"command": f"make {record['verb']}", "note": " ".join(sys.argv[1:]), "cores": os.cpu_count()}
        target = free_name(f"{record['date']}-{record['verb']}")
        target.write_text(json.dumps(record, indent=2) + "\n")
        print(f"{run} -> {target}")
    return 0


def free_name(stem: str) -> Path:
    """A path in the results folder that no earlier run of the same day has taken."""
    number = 1
    while (path := RESULTS / f"{stem}-{number}.json").exists():
        number += 1
    return path


if __name__ == "__main__":
    sys.exit(main())
