"""Minutes of load on engines that refuse, hang, die and preempt, from clients that leave and that read slowly."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sunfleet_routerbench import contenders
from sunfleet_routerbench.bench import PROBE, Bench, engines
from sunfleet_routerbench.contenders import MODEL
from sunfleet_routerbench.ledger import Soaked, requests_by_code, values
from sunfleet_routerbench.machine import HOST, KEY, ask, free_ports, running, wait_until
from sunfleet_routerbench.programs import Programs

# Shares of an engine's requests. Each kind is far more common than in any fleet that one would keep.
PREFILL_FAULTS: Final = {"refuse": 0.02, "reset": 0.01, "mute": 0.002}
DECODE_FAULTS: Final = {"refuse": 0.02, "reset": 0.01, "mute": 0.002, "die": 0.04, "hang": 0.003, "preempt": 0.02}
PACE_MS: Final = 2
CLIENTS: Final = 64
_TIMEOUTS: Final = {"prefillSeconds": 2, "kvLoadSeconds": 1, "firstTokenSeconds": 2, "interTokenSeconds": 2,
                    "requestSeconds": 30}  # fmt: skip
_LOAD: Final = ("-clients", str(CLIENTS), "-tokens", "48", "-stream", "-mixed", "-chat", "-leave", "0.04",
                "-slow", "0.03", "-warm", "0", "-patience", "60")  # fmt: skip
_SETTLE: Final = 40.0  # seconds until everything that was begun has ended


def run(programs: Programs, seconds: float) -> Soaked:
    """Soak the router for ``seconds``."""
    with engines(programs, each=3) as bench:
        _set(bench.engines.prefill, PREFILL_FAULTS)
        _set(bench.engines.decode, DECODE_FAULTS)
        return _soak(bench, seconds)


def _soak(bench: Bench, seconds: float) -> Soaked:
    port, metrics_port = free_ports(2)
    contender = contenders.ours(bench.engines, bench.folder, sys.executable, port, metrics_port, timeouts=_TIMEOUTS)
    log, page = bench.folder / "ours.log", f"http://{HOST}:{metrics_port}/metrics"
    with running(contender.command, contender.variables, log) as router:
        wait_until(f"http://{HOST}:{port}/v1/completions", PROBE, router, log)
        probes = requests_by_code(fetch(page))
        files = files_of(router.pid)
        command = [str(bench.load), "-model", MODEL, "-key", KEY, *contender.flags, *_LOAD, "-seconds", f"{seconds:g}"]
        load = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        memory = _watch(load, router.pid)
        said = json.loads(load.communicate()[0])
        settle(bench, page)
        metrics, files_after = fetch(page), files_of(router.pid)
        router.send_signal(signal.SIGTERM)
        code = router.wait(30)
    outcomes = Counter(said["outcomes"])
    _add_probes(outcomes, probes)
    return Soaked(
        outcomes, metrics, sum_of(bench.engines.prefill), sum_of(bench.engines.decode), memory, (files, files_after),
        most_files=3 * CLIENTS, exit_code=code,
    )  # fmt: skip


def _add_probes(outcomes: Counter[str], probes: Counter[str]) -> None:
    """What was asked before the load began is in the router's and the engines' counts."""
    for code, count in probes.items():
        outcomes["ok" if code == "ok" else f"error {code}"] += count


def _watch(load: subprocess.Popen[str], pid: int) -> list[float]:
    """Memory of the router in MB, every second until the load ends."""
    samples = []
    while load.poll() is None:
        time.sleep(1)
        samples.append(memory_of(pid))
    return samples


def memory_of(pid: int) -> float:
    """Resident MB."""
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def settle(bench: Bench, page: str) -> None:
    """Wait until everything that was begun has ended."""
    end = time.monotonic() + _SETTLE
    ports = (*bench.engines.prefill, *bench.engines.decode)
    while time.monotonic() < end and (sum_of(ports)["running"] or in_flight(page)):
        time.sleep(0.5)


def in_flight(page: str) -> float:
    """Requests that the router with this metrics page serves at the moment."""
    return sum(values(fetch(page), "sunfleet_router_in_flight_requests").values())


def fetch(url: str) -> str:
    """A router's metrics."""
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 loopback only
        text: str = answer.read().decode()
        return text


def files_of(pid: int) -> int:
    """Open ones of a process."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _set(ports: Sequence[int], faults: Mapping[str, float]) -> None:
    query = "&".join(f"{name}={share:g}" for name, share in faults.items())
    for port in ports:
        status, answer = ask(f"http://{HOST}:{port}/set?tpot_ms={PACE_MS}&{query}")
        if status != 200:
            raise RuntimeError(f"an engine refuses its faults: {answer}")


def sum_of(ports: Sequence[int]) -> dict[str, int]:
    """The counts of some engines."""
    total: Counter[str] = Counter()
    for port in ports:
        stats: Any = ask(f"http://{HOST}:{port}/stats")[1]
        total.update(stats)
    return {name: total[name] for name in ("prefill", "decode", "plain", "resumed", "refused", "failed", "complete",
                                           "left", "running", "released")}  # fmt: skip
