"""SUN's two legs against vLLM's ordinary prefill/decode flow, side by side on pairs of the same engine and weights.

``PYTHONPATH=bench:crds:e2e:e2e/cluster python -m handover [--requests N] [--prompt TOKENS] [--output TOKENS]``

Both pairs run all the time and take turns, request by request, so that what else the machine does hits both alike. What
counts is the ratio of neighbours. Four engines: 8 GiB of memory, in huge pages where malloc can have them: which small
pages an engine's weights happen to lie in makes its steps up to a tenth slower or faster until it ends.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from handover.flow import Flow, Timed
from handover.statistics import Compared, compare
from sunfleet_cluster.state import StateFolder
from support.engines import Engines, tidy_up_on_sigterm
from support.local_tasks import base_prefill, decoder
from support.stock import ordinary_server

WARM_UP = 3  # the first ones meet cold engines
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


@contextmanager
def sun_pair(state: StateFolder, folder: Path) -> Iterator[Flow]:
    """Engines of this project with the base as both modules."""
    pair = base_prefill(state, folder), decoder(state, folder, "decode")
    running = Engines()
    try:
        running.start(*pair)
        yield Flow("sun", pair[0].url, pair[1].url)
    finally:
        running.close()


@contextmanager
def ordinary_pair(state: StateFolder, folder: Path) -> Iterator[Flow]:
    """vLLM's own servers and scheduler."""
    python, base = state.engine / "bin/python", state.models / "base"
    with (
        ordinary_server(python, base, folder / "prefill", "kv_producer") as prefill,
        ordinary_server(python, base, folder / "decode", "kv_consumer") as decode,
    ):
        yield Flow("ordinary", prefill.url, decode.url)


def measure(flows: list[Flow], requests: int, prompt: int, output: int) -> dict[str, list[Timed]]:
    """``requests`` of every flow, taking turns; each prompt is new to both."""
    rng, timed = random.Random(0), {flow.name: list[Timed]() for flow in flows}  # noqa: S311
    for number in range(requests + WARM_UP):
        ids = [rng.randrange(1000, 40000) for _ in range(prompt)]
        for flow in flows if number % 2 else reversed(flows):
            result = flow.ask(ids, output)
            if number >= WARM_UP:
                timed[flow.name].append(result)
        print(f"\r{number + 1}/{requests + WARM_UP}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return timed


def report(timed: dict[str, list[Timed]], given: argparse.Namespace) -> str:
    """A Markdown table with medians in milliseconds, and the ratio of neighbours with its interval."""
    lines = [
        f"SUN against the ordinary flow, {datetime.now(UTC):%Y-%m-%d}: {given.requests} requests each, prompts of "
        f"{given.prompt}, answers of {given.output} tokens, {os.cpu_count()} cores.",
        "",
        "| | SUN, median ms | ordinary, median ms | ratio of neighbours, median | 95 % interval |",
        "|---|---|---|---|---|",
    ]
    lines += [
        _row("TTFT", compare([one.first for one in timed["sun"]], [one.first for one in timed["ordinary"]])),
        _row("TPOT", compare([one.each for one in timed["sun"]], [one.each for one in timed["ordinary"]])),
    ]
    return "\n".join(lines)


def _row(label: str, found: Compared) -> str:
    return (
        f"| {label} | {found.ours * 1000:.1f} | {found.theirs * 1000:.1f} | {found.ratio:.3f} | "
        f"{found.low:.3f} to {found.high:.3f} |"
    )


def main() -> None:
    """Start four engines, measure, print the table."""
    parser = argparse.ArgumentParser(prog="python -m handover", description=__doc__)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--prompt", type=int, default=200)
    parser.add_argument("--output", type=int, default=64)
    given = parser.parse_args()
    tidy_up_on_sigterm()
    os.environ.update(HUGE_PAGES)  # engines inherit it
    state = StateFolder.from_env()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        sun = stack.enter_context(sun_pair(state, Path(name) / "sun"))
        ordinary = stack.enter_context(ordinary_pair(state, Path(name) / "ordinary"))
        print(report(measure([sun, ordinary], given.requests, given.prompt, given.output), given))


if __name__ == "__main__":
    main()
