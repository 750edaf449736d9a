"""NIXL's polling delay: what an idle engine burns, and what a hand-over waits, for several delays.

``PYTHONPATH=bench:crds:e2e:e2e/cluster python -m handover.progress_delay [--delays US ...] [--requests N]``

NIXL's progress thread polls without a pause by default. One pair of stock engines for each delay, one after the other.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from handover.flow import Flow, Timed
from processes import cpu_seconds
from sunfleet_cluster.state import StateFolder
from support.engines import tidy_up_on_sigterm
from support.stock import StockServer, ordinary_server

DELAYS = (0, 100, 500, 1000, 5000)  # microseconds
WARM_UP = 3
# The engine's processes spin for a second after the last message; then only the progress thread is left.
SETTLE_SECONDS, IDLE_SECONDS = 4.0, 15.0


@dataclass(frozen=True)
class Measured:
    """``idle``: cores that each of the pair's engines burns, prefill and decode. ``timed``: its requests."""

    delay: int
    idle: tuple[float, float]
    timed: list[Timed]

    @property
    def row(self) -> str:
        """Of the table; times in milliseconds."""
        handover = sorted(one.handover * 1000 for one in self.timed)
        quartiles = statistics.quantiles(handover, n=4)
        first = statistics.median(one.first * 1000 for one in self.timed)
        return (
            f"| {self.delay} | {self.idle[0]:.1%} | {self.idle[1]:.1%} | {statistics.median(handover):.1f} "
            f"({quartiles[0]:.1f} to {quartiles[2]:.1f}) | {first:.1f} |"
        )


def measure(state: StateFolder, folder: Path, delay: int, requests: int, prompt: int) -> Measured:
    """Start a pair, watch it idle, then ask one request at a time."""
    python, base, rng = state.engine / "bin/python", state.models / "base", random.Random(0)  # noqa: S311
    with ExitStack() as stack:
        pair = [
            stack.enter_context(
                ordinary_server(python, base, folder / role, role, connector={"progress_delay_us": delay})
            )
            for role in ("kv_producer", "kv_consumer")
        ]
        flow = Flow("ordinary", pair[0].url, pair[1].url)
        prompts = [[rng.randrange(1000, 40000) for _ in range(prompt)] for _ in range(WARM_UP + requests)]
        for ids in prompts[:WARM_UP]:  # the agents meet with the first one
            flow.ask(ids, 2)
        idle = idle_cores(pair)
        return Measured(delay, (idle[0], idle[1]), [flow.ask(ids, 2) for ids in prompts[WARM_UP:]])


def idle_cores(pair: Sequence[StockServer]) -> list[float]:
    """Cores that each server's processes burn while nobody asks."""
    time.sleep(SETTLE_SECONDS)
    before, began = [cpu_seconds(server.pid) for server in pair], time.monotonic()
    time.sleep(IDLE_SECONDS)
    seconds = time.monotonic() - began
    return [(cpu_seconds(server.pid) - earlier) / seconds for server, earlier in zip(pair, before, strict=True)]


def main() -> None:
    """Measure each delay and print a Markdown table, row by row."""
    parser = argparse.ArgumentParser(prog="python -m handover.progress_delay", description=__doc__)
    parser.add_argument("--delays", type=int, nargs="+", default=DELAYS, metavar="US")
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--prompt", type=int, default=200)
    given = parser.parse_args()
    tidy_up_on_sigterm()
    print("| delay, µs | idle prefill | idle decode | hand-over, median ms (quartiles) | TTFT, median ms |")
    print("|---|---|---|---|---|")
    for delay in given.delays:
        with tempfile.TemporaryDirectory() as name:
            print(measure(StateFolder.from_env(), Path(name), delay, given.requests, given.prompt).row, flush=True)


if __name__ == "__main__":
    main()
