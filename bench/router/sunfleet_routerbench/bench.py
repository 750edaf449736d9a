"""One benchmark run: every router in turn through every scenario, and that several times."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sunfleet_routerbench import contenders
from sunfleet_routerbench.contenders import MODEL, Contender, Engines
from sunfleet_routerbench.machine import HOST, KEY, ask, busy_seconds, free_ports, process_seconds, running, wait_until
from sunfleet_routerbench.programs import Programs
from sunfleet_routerbench.results import Measure
from sunfleet_routerbench.scenarios import Scenario

PROBE = {"model": MODEL, "prompt": "#1 hello", "max_tokens": 2}


@dataclass(frozen=True)
class Plan:
    scenarios: Sequence[Scenario]
    rounds: int
    scale: float  # of the windows' length
    peers: bool
    only: tuple[str, ...] = ()  # names of contenders; empty: all


@dataclass(frozen=True)
class Bench:
    """The engines of a run, which stay, and what is needed to ask them."""

    engines: Engines
    pids: list[int]
    load: Path
    folder: Path


@contextmanager
def engines(programs: Programs, each: int = 2) -> Iterator[Bench]:
    """``each`` prefill and ``each`` decode engines."""
    built = programs.build()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="routerbench-")))
        ports = free_ports(2 * each)
        pids = []
        for number, port in enumerate(ports):
            role = "prefill" if number < each else "decode"
            log = folder / f"engine-{port}.log"
            command = [str(built["engine"]), "-port", str(port), "-role", role]
            process = stack.enter_context(running(command, {}, log))
            wait_until(f"http://{HOST}:{port}/health", None, process, log)
            pids.append(process.pid)
        yield Bench(Engines(tuple(ports[:each]), tuple(ports[each:])), pids, built["load"], folder)


def run(plan: Plan, programs: Programs) -> list[Measure]:
    """Every measurement, in the order in which it was made."""
    measures = []
    with engines(programs) as bench:
        everyone = _contenders(plan, programs, bench)
        for number in range(1, plan.rounds + 1):
            for contender in everyone:
                for measure in _measure_all(plan, bench, contender, number):
                    measures.append(measure)
                    _say(measure)
    return measures


def _contenders(plan: Plan, programs: Programs, bench: Bench) -> list[Contender]:
    ports, folder = free_ports(5), bench.folder
    found = contenders.direct(bench.engines)
    found.append(contenders.ours(bench.engines, folder, sys.executable, ports[0], ports[1]))
    found.append(contenders.haproxy(bench.engines, folder, programs, ports[2]))
    if plan.peers:
        found.append(contenders.vllm_router(bench.engines, programs, ports[3], ports[4]))
    return [one for one in found if not plan.only or one.name in plan.only]


def _measure_all(plan: Plan, bench: Bench, contender: Contender, number: int) -> Iterator[Measure]:
    with ExitStack() as stack:
        flags = list(contender.flags)
        if contender.command:
            log = bench.folder / f"{contender.name}.log"
            process = stack.enter_context(running(contender.command, contender.variables, log))
            wait_until(f"{contender.flags[1]}/v1/completions", PROBE, process, log)
            flags += ["-pid", str(process.pid)]
        for scenario in plan.scenarios:
            yield _measure(plan, bench, contender.name, scenario, flags, number)


def _measure(plan: Plan, bench: Bench, name: str, scenario: Scenario, flags: list[str], number: int) -> Measure:
    for port in (*bench.engines.prefill, *bench.engines.decode):
        ask(f"http://{HOST}:{port}/set?tpot_ms={scenario.pace}")
    command = [str(bench.load), "-model", MODEL, "-key", KEY, *flags, *scenario.load_flags(plan.scale)]
    router = [int(flags[flags.index("-pid") + 1])] if "-pid" in flags else []
    mine = [*bench.pids, *router]
    busy, used, began = busy_seconds(), process_seconds(mine), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    others = busy_seconds() - busy - (process_seconds(mine) - used) - float(said["own_cpu_s"])
    return Measure(name, scenario.name, number, round(max(others, 0.0) / (time.monotonic() - began), 2), said)


def _say(measure: Measure) -> None:
    said = measure.said
    sys.stderr.write(
        f"[{measure.round}] {measure.contender} ({measure.scenario}): {said['requests_per_s']:.0f} requests/s, "
        f"{said['chunks_per_s']:.0f} chunks/s, TTFT p50 {said['ttft_ms'].get('p50', 0):.2f} ms, "
        f"CPU {said.get('cpu_s', 0):.2f} s, others {measure.foreign} cores\n"
    )
