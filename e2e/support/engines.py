"""Engine pods as plain processes on loopback: the worker's own entry point, no cluster, no image."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from sunfleet_api.engine import ExtraArg
from sunfleet_api.worker import WorkerSettings
from support import device

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 600  # 20 on a quiet machine
BLOCK = 32
MAX_MODEL_LEN = 1024
# Small steps, so that prompts of a few hundred tokens are computed in several.
STEP_TOKENS = 256


# Below the kernel's own choice for outgoing connections, which may take a port between our look and an engine's bind,
# and below Kubernetes' node ports.
_PORTS = range(15_000, 29_000)
_given: set[int] = set()
_lock = threading.Lock()
_random = random.SystemRandom()


class EngineDidNotStart(Exception):  # noqa: N818 - says it best
    """The engine ended or took too long; the message holds the end of its log."""


@dataclass
class Engine:
    """One started engine. ``weights`` and ``adapter`` are folders."""

    name: str
    role: str
    weights: Path
    folder: Path
    python: Path
    adapter: Path | None = None
    extra_args: Mapping[str, str] = field(default_factory=dict)
    drain_seconds: int = 30
    max_model_len: int = MAX_MODEL_LEN
    dtype: str = "float32"
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def start(self) -> None:
        """Start without waiting. The model path is relative: the engines' handshake compares it as a string."""
        self.folder.mkdir(parents=True, exist_ok=True)
        _link(self.folder / "model", self.weights)
        if self.adapter:
            _link(self.folder / "adapter", self.adapter)
        self.port, side_channel, kv_first = free_ports(1)[0], free_ports(1)[0], free_ports(20)[0]
        settings = WorkerSettings(
            role="prefill" if self.role == "prefill" else "decode",
            model_path="model",
            adapter_path="adapter" if self.adapter else "",
            dtype=self.dtype,
            block_size=BLOCK,
            max_model_len=self.max_model_len,
            extra_args=tuple(ExtraArg(name=name, value=value) for name, value in self._extra_args().items()),
            port=self.port,
            side_channel_port=side_channel,
            kv_port_first=kv_first,
            kv_port_last=kv_first + 19,
            drain_timeout_seconds=self.drain_seconds,
            kv_fingerprint="test",
        )
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(self.python), "-m", "sunfleet_worker"],
                cwd=self.folder,
                env={**os.environ, **settings.to_env(), "PYTHONPATH": _paths(), "HOME": str(self.folder)},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # the engine's processes are one group, which faults hit as a whole
            )

    def _extra_args(self) -> dict[str, str]:
        defaults = {"kv-cache-memory-bytes": str(512 << 20), "max-num-batched-tokens": str(STEP_TOKENS)}
        return {**defaults, **device.engine_flags(device.chosen(), self.dtype), **self.extra_args}

    def wait_ready(self) -> None:
        """Return once the engine answers.

        Raises:
            EngineDidNotStart: it ended, or is not there after ``START_SECONDS``.
        """
        assert self.process is not None
        wait_for_status(f"{self.url}/sunfleet/readyz", self.process, self.log)

    def terminate(self) -> None:
        """Send SIGTERM."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to every process of the engine, as when a node goes; waits until it is gone."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def freeze(self) -> None:
        """Stop every process of the engine in its tracks, with all connections open."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Undo :meth:`freeze`."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGCONT)

    def stop(self) -> int:
        """Drain and wait; the exit code. Safe to repeat."""
        if self.process is None:
            return 0
        return end(self.process)


def end(process: subprocess.Popen[bytes]) -> int:
    """Ask the leader of a session to end, and make sure that nothing of the session is left; the exit code.

    An engine that is still loading does not listen, and its other processes can outlive the first one.
    """
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        return process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
    finally:
        with suppress(ProcessLookupError):  # the usual case: all are gone
            os.killpg(process.pid, signal.SIGKILL)


class Engines:
    """Starts engines side by side and stops them all."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def start(self, *engines: Engine) -> None:
        for engine in engines:
            engine.start()
            self._stack.callback(engine.stop)
        for engine in engines:
            engine.wait_ready()

    def close(self) -> None:
        self._stack.close()


def tidy_up_on_sigterm() -> None:
    """Let SIGTERM unwind the stack as SIGINT does: else whoever ends a suite leaves its engines, gigabytes of them."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def free_ports(count: int) -> Sequence[int]:
    """``count`` ports in a row that nobody uses now and that this process has not been given before."""
    with _lock:
        while True:
            first = _random.randrange(_PORTS.start, _PORTS.stop - count)
            ports = range(first, first + count)
            if _given.isdisjoint(ports) and all(map(_is_free, ports)):
                _given.update(ports)
                return ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wait_for_status(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return once a started server answers 200.

    Raises:
        EngineDidNotStart: it ended, or is not there after ``START_SECONDS``; with the end of its log.
    """
    deadline = time.monotonic() + START_SECONDS
    while get_status(url) != 200:
        late = time.monotonic() > deadline
        if late or process.poll() is not None:
            what = f"no answer after {START_SECONDS} s" if late else f"it ended with {process.returncode}"
            raise EngineDidNotStart(f"{url}: {what}:\n{log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.3)


def get_status(url: str) -> int:
    """HTTP status of a GET, 0 when nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def get_json(url: str) -> object:
    return json.loads(get_text(url))


def get_text(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        text: str = answer.read().decode()
        return text


def _paths() -> str:
    return os.pathsep.join(str(ROOT / room) for room in ("crds", "worker_images/vllm"))


def _link(link: Path, target: Path) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target)
