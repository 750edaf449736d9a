"""Processes and figures of this machine."""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sunfleet_routerbench.programs import ROOT

HOST: Final = "127.0.0.1"
KEY: Final = "bench-key"  # ours asks for one; the others do not look
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class StartError(Exception):
    """A process does not serve; the text has the end of its log."""


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@contextmanager
def running(command: Sequence[str], variables: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process in its own group, ended with the context."""
    environment = {**os.environ, **variables, "NO_PROXY": HOST, "no_proxy": HOST}
    with log.open("ab") as out:
        process = subprocess.Popen(
            list(command), env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ask(url: str, body: Any = None, timeout: float = 5.0) -> tuple[int, Any]:
    """(status, JSON); status 0 when there is no answer."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
    request = urllib.request.Request(url, data, headers)  # noqa: S310 loopback only
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:  # noqa: S310
            raw, status = answer.read(), answer.status
    except urllib.error.HTTPError as error:
        raw, status = error.read(), error.code
    except OSError:
        return 0, None
    try:
        return status, json.loads(raw or b"null")
    except json.JSONDecodeError:
        return status, None


def wait_until(url: str, body: Any, process: subprocess.Popen[bytes], log: Path, seconds: float = 60.0) -> None:
    """Until it answers 200; raises :class:`StartError`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        if ask(url, body)[0] == 200:
            return
        time.sleep(0.1)
    raise StartError(f"{log.stem} does not serve; the end of {log}:\n{log.read_text(errors='replace')[-2000:]}")


def busy_seconds() -> float:
    """CPU seconds that this machine has spent so far on anything."""
    words = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _idle, _wait, interrupts, soft, *_ = (int(word) for word in words)
    return (user + nice + system + interrupts + soft) / _TICKS


def process_seconds(pids: Sequence[int]) -> float:
    """CPU seconds of these processes and of children that they have waited for."""
    total = 0
    for pid in pids:
        try:
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            continue
        total += sum(int(word) for word in words[11:15])
    return total / _TICKS


def facts(arguments: Sequence[str]) -> dict[str, Any]:
    """What a reader must know to read the figures."""
    model = next(line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                 if line.startswith("model name"))  # fmt: skip
    commit = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True,
                            check=False).stdout.strip()  # fmt: skip
    return {
        "command": " ".join(arguments), "when": datetime.now(UTC).isoformat(timespec="seconds"), "commit": commit,
        "cpu": model, "cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version(),
        "load_at_start": os.getloadavg()[0], "nice": os.nice(0),
    }  # fmt: skip
