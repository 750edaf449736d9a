"""Start, steer and kill fake engines as processes on free ports of this machine."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from types import TracebackType
from typing import Any, Literal, Self, cast

from sunfleet_api.worker import WorkerSettings
from sunfleet_fakes.engine.tokens import expected_text, expected_tokens, tokenize

_HOST = "127.0.0.1"
_START_SECONDS = 20
_STOP_SECONDS = 10
# Whatever proxy this machine uses. An engine that speaks TLS has a certificate of a test.
_DIRECT = urllib.request.build_opener(
    urllib.request.ProxyHandler({}),
    urllib.request.HTTPSHandler(context=ssl._create_unverified_context()),  # noqa: S323
)

__all__ = ["EngineControl", "FakeEngine", "expected_text", "expected_tokens", "tokenize"]


class EngineControl:
    """What a test says to a fake engine at :attr:`url` and asks of it."""

    url: str

    def __init__(self, url: str) -> None:
        self.url = url

    def configure(self, **fields: Any) -> dict[str, Any]:
        """Change these fields of its behaviour (see ``sunfleet_fakes.engine.behaviour``)."""
        return cast("dict[str, Any]", self.request("PATCH", "/fake/config", fields))

    def reset(self) -> None:
        """As freshly started: no faults, no leases, no memory."""
        self.request("POST", "/fake/reset")

    def requests(self) -> list[dict[str, Any]]:
        """The generation requests it has got, oldest first: path, headers, body, outcome, status, tokens, ..."""
        return cast("list[dict[str, Any]]", self.request("GET", "/fake/requests"))

    def metric(self, series: str) -> float:
        """Value of the series whose name and labels start like this, for example ``vllm:num_requests_running``."""
        text = str(self.request("GET", "/metrics"))
        values = [float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(series)]
        if not values:
            raise KeyError(series)
        return sum(values)

    def prompt_tokens(self, source: str) -> float:
        """``vllm:prompt_tokens_by_source_total`` of one source."""
        text = str(self.request("GET", "/metrics"))
        mark = f'source="{source}"}} '
        return next(float(line.split(mark)[1]) for line in text.splitlines() if mark in line)

    def request(self, method: str, path: str, body: object = None) -> Any:
        """One plain request; JSON is decoded. Raises :class:`urllib.error.HTTPError`."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"}, method=method)
        with _DIRECT.open(request, timeout=10) as answer:
            raw = answer.read()
            return json.loads(raw) if answer.headers.get_content_type() == "application/json" else raw.decode()


class FakeEngine(EngineControl):
    """One fake engine process. Use as a context manager, or call :meth:`start` and :meth:`stop`.

    ``settings`` are fields of :class:`sunfleet_api.worker.WorkerSettings`; ``behaviour`` is what it starts with. A port
    of 0 takes a free one; after a kill, :meth:`start` comes back on the same ports.
    """

    def __init__(
        self, role: Literal["prefill", "decode"], *, identity: str = "", behaviour: dict[str, Any] | None = None,
        host: str = _HOST, port: int = 0, side_channel_port: int = 0, **settings: Any,
    ) -> None:  # fmt: skip
        self.role = role
        self.identity = identity
        self.host = host
        super().__init__(f"http://{host}:{port}")
        self.port = port
        self.side_channel_port = side_channel_port
        self.admin_port = 0  # of a pool's pod, once it runs
        self._behaviour = behaviour or {}
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        """Process id while it runs."""
        return self._running().pid

    def start(self) -> Self:
        """Start and wait until it listens."""
        settings = WorkerSettings(
            role=self.role, port=self.port, side_channel_port=self.side_channel_port, **self._settings
        )
        environment = {
            **os.environ,
            **settings.to_env(),
            "SUNFLEET_WORKER_API_KEY": settings.api_key.get_secret_value(),
            "SUNFLEET_WORKER_POD_IP": self.host,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "SUNFLEET_FAKE_HOST": self.host,
            "SUNFLEET_FAKE_IDENTITY": self.identity,
            "SUNFLEET_FAKE_BEHAVIOUR": json.dumps(self._behaviour),
        }
        command = [sys.executable, "-m", "sunfleet_fakes.engine"]
        self._process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        line = cast("Any", self._process.stdout).readline()
        if not line:
            raise RuntimeError(f"the fake engine ended at once with {self._process.wait(_START_SECONDS)}")
        where = json.loads(line)
        self.port, self.side_channel_port = where["port"], where["side_channel_port"]
        self.admin_port = where["admin_port"]
        self.url = f"{'https' if settings.tls_path else 'http'}://{self.host}:{self.port}"
        self.identity = where["identity"]
        return self

    def terminate(self) -> None:
        """Send SIGTERM: it drains."""
        self._running().send_signal(signal.SIGTERM)

    def wait(self, seconds: float = _STOP_SECONDS) -> int:
        """Exit code, once it has ended by itself."""
        return self._running().wait(seconds)

    def kill(self) -> None:
        """SIGKILL, as a node that vanishes."""
        process = self._running()
        process.kill()
        process.wait(_STOP_SECONDS)

    def freeze(self) -> None:
        """SIGSTOP: connections stay, nothing answers. :meth:`stop` ends it all the same."""
        self._running().send_signal(signal.SIGSTOP)

    def stop(self) -> None:
        """End the process, however it is doing; nothing happens when it has ended."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait(_STOP_SECONDS)
        if process.stdout is not None:
            process.stdout.close()

    def reset(self) -> None:
        """As freshly started, on the same ports: no faults, leases or memory. Started again if it died."""
        try:
            super().reset()
        except OSError:  # it is dead or dying
            self.stop()
            self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise RuntimeError("this fake engine is not running")
        return self._process
