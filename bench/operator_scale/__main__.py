"""How the operator does with 50, 200 and 500 SunModels.

``PYTHONPATH=bench:crds:operator:e2e/cluster:tests/support python -m operator_scale [--sizes 50,200,500] [--output
json]``

Needs `make programs`, no root and no node. Ten minutes for the three sizes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.status import Status
from rich.table import Table

from operator_scale.measure import Figures, Told, measure

# Row, how it is shown, and what it has to be.
ROWS = (
    ("ready_after_last_accepted", "{:.1f}", "all Ready, s after the last was accepted", "500 in 90"),
    ("ready_after_first_sent", "{:.1f}", "all Ready, s after the first was sent", ""),
    ("operator_cpu", "{:.1f}", "operator CPU until then, s", ""),
    ("server_cpu", "{:.1f}", "API server CPU until then, s", ""),
    ("all_cpu", "{:.1f}", "CPU of both, etcd and the controllers, s", ""),
    ("requests_per_model", "{:.1f}", "API requests a SunModel until then", ""),
    ("patch_p50", "{:.3f}", "patch to changed Deployment, p50, s", ""),
    ("patch_p99", "{:.3f}", "patch to changed Deployment, p99, s", "2"),
    ("idle_requests", "{}", "API requests in 30 s idle", ""),
    ("idle_writes", "{}", "of those, writes without the Lease", "0"),
    ("idle_cpu_percent", "{:.1f}", "CPU when idle, % of a core", ""),
    ("resync_reconciles", "{}", "reconciles of a restart and a resync", ""),
    ("resync_requests_per_reconcile", "{:.1f}", "API requests a reconcile", ""),
    ("resync_writes", "{}", "writes in them", "0"),
    ("rss", "{:.0f}", "operator RSS, MB", "250"),
)


def table(found: Sequence[Figures]) -> Table:
    """One column a size."""
    shown = Table("", *(f"{each.models} SunModels" for each in found), "at most")
    for name, text, title, limit in ROWS:
        shown.add_row(title, *(text.format(getattr(each, name)) for each in found), limit)
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m operator_scale", description=__doc__)
    parser.add_argument("--sizes", default="50,200,500", help="SunModels, comma-separated (default: %(default)s)")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    options = parser.parse_args()
    found = list[Figures]()
    progress = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="operator-scale-") as root:
        for size in map(int, options.sizes.split(",")):
            with progress.status(f"{size} SunModels") as status:
                found.append(asyncio.run(measure(Path(root) / str(size), size, _teller(status, size))))
    if options.output == "json":
        print(json.dumps([each.to_json() for each in found], indent=2))
    else:
        Console().print(table(found))
    return 0


def _teller(status: Status, size: int) -> Told:
    return lambda text: status.update(f"{size} SunModels: {text}")


if __name__ == "__main__":
    sys.exit(main())
