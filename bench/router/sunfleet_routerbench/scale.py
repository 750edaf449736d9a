"""How much one router bears: many streams at once, many requests, clients that leave; and two processes beside one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from sunfleet_routerbench import contenders
from sunfleet_routerbench.bench import PROBE, Bench, engines
from sunfleet_routerbench.contenders import MODEL
from sunfleet_routerbench.ledger import values
from sunfleet_routerbench.machine import HOST, KEY, ask, free_ports, running, wait_until
from sunfleet_routerbench.programs import Programs
from sunfleet_routerbench.soak import fetch, files_of, in_flight, memory_of, settle

GAUGES: Final = ("in_flight_requests", "queue_depth", "queued_prompt_tokens", "queued_tokens", "queued_bytes",
                 "prefill_backlog_tokens", "decode_kv_reserved_tokens", "decode_queued_tokens")  # fmt: skip
_GROWTH_MB: Final = 8.0  # of memory between two halves of the requests: more is a leak
_BATCHES: Final = 10
_LINEAR: Final = 1.6  # times one process's requests; clients and engines need the same two cores


@dataclass(frozen=True)
class Plan:
    """``share`` of the full numbers: 5,000 streams, 100,000 requests, 10,000 that are left."""

    share: float = 1.0

    @property
    def streams(self) -> int:
        return int(5_000 * self.share)

    @property
    def requests(self) -> int:
        return int(110_000 * self.share)


@dataclass
class Scaled:
    """A run's rows, and what was not as it must be."""

    rows: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def check(self, good: bool, problem: str) -> None:
        if not good:
            self.problems.append(problem)


@dataclass(frozen=True)
class Router:
    """A running one."""

    url: str
    pid: int
    page: str


def run(programs: Programs, plan: Plan) -> Scaled:
    """All three."""
    scaled = Scaled()
    with engines(programs) as bench:
        with _router(bench, "one") as router:
            _streams(bench, router, plan, scaled)
            _churn(bench, router, plan, scaled)
        _processes(bench, plan, scaled)
    return scaled


@contextmanager
def _router(bench: Bench, name: str) -> Iterator[Router]:
    port, metrics_port = free_ports(2)
    contender = contenders.ours(bench.engines, bench.folder, sys.executable, port, metrics_port)
    log, url = bench.folder / f"{name}.log", f"http://{HOST}:{port}"
    with running(contender.command, contender.variables, log) as process:
        wait_until(f"{url}/v1/completions", PROBE, process, log)
        yield Router(url, process.pid, f"http://{HOST}:{metrics_port}/metrics")


def _streams(bench: Bench, router: Router, plan: Plan, scaled: Scaled) -> None:
    """All open at once, each with a token in a second."""
    _pace(bench, 1000)
    before, stagger = memory_of(router.pid), 20 * plan.share
    load = _load(bench, [router], "-clients", plan.streams, "-stream", "-tokens", 60, "-stagger", stagger,
                 "-warm", stagger + 5, "-seconds", 10, "-patience", 60)  # fmt: skip
    most, memory = 0.0, before
    while load.poll() is None:
        time.sleep(1)
        most, memory = max(most, in_flight(router.page)), max(memory, memory_of(router.pid))
    said = json.loads(load.communicate()[0])
    bad = {name: count for name, count in said["outcomes"].items() if name != "ok"}
    scaled.rows += [
        ("streams open at once", f"{most:,.0f}"), ("their gap p99", f"{said['gap_ms'].get('p99', 0):.0f} ms of 1,000"),
        ("memory with them", f"{memory:.0f} MB, {1024 * (memory - before) / plan.streams:.1f} kB for each stream"),
    ]  # fmt: skip
    scaled.check(most >= plan.streams, f"only {most:.0f} of {plan.streams} streams were open at once")
    scaled.check(not bad, f"streams that did not end well: {bad}")
    _empty(bench, router, scaled)


def _churn(bench: Bench, router: Router, plan: Plan, scaled: Scaled) -> None:
    """Every eleventh client leaves before its answer is whole."""
    _pace(bench, 0)
    files, memory, left, total = files_of(router.pid), [], 0, 0
    for _ in range(_BATCHES):
        load = _load(bench, [router], "-clients", 32, "-stream", "-mixed", "-tokens", 16, "-leave", 0.1, "-warm", 0,
                     "-seconds", 600, "-requests", plan.requests // _BATCHES)  # fmt: skip
        outcomes = json.loads(load.communicate()[0])["outcomes"]
        left, total = left + outcomes.pop("left", 0), total + outcomes.pop("ok", 0)
        scaled.check(not outcomes, f"requests that did not end well: {outcomes}")
        memory.append(memory_of(router.pid))
    half = len(memory) // 2
    scaled.rows += [
        ("requests answered", f"{total:,}"), ("clients that left", f"{left:,}"),
        ("memory meanwhile", " ".join(f"{megabytes:.1f}" for megabytes in memory) + " MB"),
    ]  # fmt: skip
    growth = max(memory[half:]) - max(memory[:half])
    scaled.check(growth <= _GROWTH_MB, f"memory grew by {growth:.1f} MB in the second half of the requests")
    _empty(bench, router, scaled)
    grown = files_of(router.pid) - files
    scaled.check(grown <= 3 * 32, f"{grown} more open files than before")


def _processes(bench: Bench, plan: Plan, scaled: Scaled) -> None:
    """Requests/s of one and of two, in turn."""
    _pace(bench, 0)
    with ExitStack() as stack:
        pair = [stack.enter_context(_router(bench, name)) for name in ("left", "right")]
        rates: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(3):
            for count, found in rates.items():
                load = _load(bench, pair[:count], "-clients", 32, "-warm", 1, "-seconds", 4 * plan.share + 1)
                found.append(json.loads(load.communicate()[0])["requests_per_s"])
    one, two = (sorted(rates[count])[1] for count in (1, 2))
    scaled.rows.append(("requests/s of one process, of two", f"{one:,.0f}, {two:,.0f} ({two / one:.2f} times)"))
    scaled.check(two >= _LINEAR * one, f"two processes served {two / one:.2f} times the requests of one")


def _load(bench: Bench, routers: list[Router], *flags: object) -> subprocess.Popen[str]:
    command = [str(bench.load), "-model", MODEL, "-key", KEY, "-url", ",".join(one.url for one in routers)]
    return subprocess.Popen([*command, *map(str, flags)], stdout=subprocess.PIPE, text=True)


def _pace(bench: Bench, milliseconds: int) -> None:
    for port in (*bench.engines.prefill, *bench.engines.decode):
        ask(f"http://{HOST}:{port}/set?tpot_ms={milliseconds}")


def _empty(bench: Bench, router: Router, scaled: Scaled) -> None:
    settle(bench, router.page)
    page: Any = fetch(router.page)
    for name in GAUGES:
        kept = {labels: value for labels, value in values(page, f"sunfleet_router_{name}").items() if value}
        scaled.check(not kept, f"{name} did not go back to 0: {kept}")
