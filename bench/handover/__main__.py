"""SUN's two legs against vLLM's ordinary prefill/decode flow, side by side on pairs of the same engine and weights.

``PYTHONPATH=bench:crds:e2e:e2e/cluster python -m handover [--requests N] [--starts N] [--output N] [--tiny]``

Both pairs run at the same time and take turns, request by request, so that what else the machine does hits both alike.
What counts is the ratio of neighbours. Where an engine's weights happen to lie in memory makes its steps up to a tenth
slower or faster until it ends, and those that start first tend to be the slower ones. So engines are started several
times, every other time the other way round. (Huge pages would favour one side: engine pods on a CPU are forks, and
what a fork shares with its parent loses its huge pages when it is written.) Four engines at a time:
8 GiB of memory.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from handover.flow import Flow, Timed
from handover.statistics import Compared, compare
from handover.tiny import tiny_model
from sunfleet_cluster.state import StateFolder
from support.engines import Engine, Engines, tidy_up_on_sigterm
from support.local_tasks import SMALL_POOL
from support.stock import ordinary_server

WARM_UP = 3  # the first ones meet cold engines
Times = dict[str, list[Timed]]
Pair = Callable[[Path, Path, Path], AbstractContextManager[Flow]]


@contextmanager
def sun_pair(python: Path, model: Path, folder: Path) -> Iterator[Flow]:
    """Engines of this project with the model as both modules."""
    pair = [Engine(role, role, model, folder / role, python, extra_args=SMALL_POOL) for role in ("prefill", "decode")]
    running = Engines()
    try:
        running.start(*pair)
        yield Flow("sun", pair[0].url, pair[1].url)
    finally:
        running.close()


@contextmanager
def ordinary_pair(python: Path, model: Path, folder: Path) -> Iterator[Flow]:
    """vLLM's own servers and scheduler."""
    with (
        ordinary_server(python, model, folder / "prefill", "kv_producer", flags=SMALL_POOL) as prefill,
        ordinary_server(python, model, folder / "decode", "kv_consumer", flags=SMALL_POOL) as decode,
    ):
        yield Flow("ordinary", prefill.url, decode.url)


def measure(flows: list[Flow], requests: int, prompt: int, output: int) -> Times:
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


def started(pairs: Sequence[Pair], python: Path, model: Path, given: argparse.Namespace) -> Times:
    """What pairs take that are started in this order; they are gone afterwards."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        flows = [stack.enter_context(pair(python, model, Path(name) / pair.__name__)) for pair in pairs]
        return measure(flows, given.requests // given.starts, given.prompt, given.output)


def report(starts: Sequence[Times], given: argparse.Namespace) -> str:
    """A Markdown table with medians in milliseconds, and the ratio of neighbours with its interval."""
    requests = sum(len(timed["sun"]) for timed in starts)
    lines = [
        f"SUN against the ordinary flow, {datetime.now(UTC):%Y-%m-%d}: {requests} requests each, prompts of "
        f"{given.prompt}, answers of {given.output} tokens, {os.cpu_count()} cores.",
        "",
        "| | SUN, median ms | ordinary, median ms | ratio of neighbours (95 %) | difference of neighbours, ms (95 %) |",
        "|---|---|---|---|---|",
    ]
    figures: dict[str, Callable[[Timed], float]] = {
        "TTFT": lambda one: one.first, "TPOT": lambda one: one.each, "median gap": lambda one: one.gap,
        "whole answer": lambda one: one.all,
    }  # fmt: skip
    for label, figure in figures.items():
        lines.append(
            _row(label, compare([(_each(one, "sun", figure), _each(one, "ordinary", figure)) for one in starts]))
        )
    return "\n".join(lines)


def _each(timed: Times, name: str, figure: Callable[[Timed], float]) -> list[float]:
    return [figure(one) for one in timed[name]]


def _row(label: str, found: Compared) -> str:
    ratio, more = found.ratio, found.more
    return (
        f"| {label} | {found.ours * 1000:.2f} | {found.theirs * 1000:.2f} | "
        f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f}) | "
        f"{more.value * 1000:+.2f} ({more.low * 1000:+.2f} to {more.high * 1000:+.2f}) |"
    )


def main() -> None:
    """Start four engines, measure, print the table."""
    parser = argparse.ArgumentParser(prog="python -m handover", description=__doc__)
    parser.add_argument("--requests", type=int, default=96)
    parser.add_argument("--starts", type=int, default=8, help="how often the engines are started, in turn")
    parser.add_argument("--prompt", type=int, default=200)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--tiny", action="store_true", help="a tiny model: what the flow itself adds to a token")
    given = parser.parse_args()
    if given.starts < 2 or given.starts % 2 or given.requests < given.starts:
        parser.error("--starts: an even number, 2 or more, and --requests at least as many")
    tidy_up_on_sigterm()
    state = StateFolder.from_env()
    python, model = state.engine / "bin/python", state.models / "base"
    with tempfile.TemporaryDirectory() as name:
        if given.tiny:
            model = tiny_model(python, model, Path(name) / "tiny")
        print(f"All:\n\n{report(list(_starts(python, model, given)), given)}")


def _starts(python: Path, model: Path, given: argparse.Namespace) -> Iterator[Times]:
    """What each start took; it is printed as it comes."""
    orders = ((sun_pair, ordinary_pair), (ordinary_pair, sun_pair))
    for number in range(given.starts):
        timed = started(orders[number % 2], python, model, given)
        first = ("SUN", "ordinary")[number % 2]
        print(f"Start {number + 1}, {first} first:\n\n{report([timed], given)}\n", flush=True)
        yield timed


if __name__ == "__main__":
    main()
