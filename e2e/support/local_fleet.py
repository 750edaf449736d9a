"""A fleet without a cluster: real engines, a real router, and proxies that cut streams, all on loopback.

What it shows holds on a cluster too, and it also runs where no cluster is, as on a machine that only has a GPU.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from openai import APIError

from sunfleet_api import names
from support.client import Answer, RouterClient
from support.cuts import CuttingProxy, Proxies
from support.engines import ROOT, Engine, free_ports, get_status, get_text
from support.kubectl import wait_until
from support.metrics import PromptTokens, prompt_tokens, samples
from support.reference import Reference, Scores

ROUTER_SECONDS = 30
CLIENT_SECONDS = 600.0  # without a word: a stream may wait in a long line
POOL = "local/base"
TRIED = [3, 1, 4, 1, 5]  # token ids of a prompt that nobody looks at
# A frozen engine is given up soon. Everything else may take its time on a small machine with many requests at once.
TRAFFIC = {
    "timeouts": {"interTokenSeconds": 15, "prefillSeconds": 180, "firstTokenSeconds": 180},
    "queue": {"ttlSeconds": 300},
}


@dataclass(frozen=True)
class LocalTask:
    """A task: the engine that prefills for it, the pool that decodes, and its module as the reference wants it.

    ``salt``: of its module's revision; empty for what the router makes of the task's name.
    """

    name: str
    prefill: Engine
    module: Mapping[str, str]
    pool: str = POOL
    salt: str = ""


@dataclass
class Router:
    """The router's process."""

    folder: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    port: int = 0
    metrics_port: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, config: Mapping[str, Any]) -> None:
        """Start over this fleet and wait until it serves; raises :class:`TimeoutError` with the end of its log."""
        path = self.folder / "fleet.yaml"
        path.write_text(yaml.safe_dump(dict(config)))
        self.port, self.metrics_port = free_ports(1)[0], free_ports(1)[0]
        ports = ["--port", str(self.port), "--metrics-port", str(self.metrics_port), "--host", "127.0.0.1"]
        rooms = os.pathsep.join(str(ROOT / room) for room in ("crds", "router"))
        with (self.folder / "router.log").open("wb") as log:
            fixed = {"SUNFLEET_ROUTER_POD_HEADERS": "true", "SUNFLEET_ROUTER_AUTHENTICATION": "disabled"}
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sunfleet_router", "--config", str(path), *ports],
                env={**os.environ, "PYTHONPATH": rooms, **fixed, **self.settings},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + ROUTER_SECONDS
        while get_status(f"{self.url}/readyz") != 200:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise TimeoutError(f"the router does not serve:\n{(self.folder / 'router.log').read_text()[-2000:]}")
            time.sleep(0.1)

    def metric(self, name: str, **labels: str) -> float:
        """Sum of a metric's samples with these labels."""
        text = get_text(f"http://127.0.0.1:{self.metrics_port}/metrics")
        return sum(value for found, value in samples(text, name) if labels.items() <= found.items())

    def stop(self) -> int:
        """Drain and wait; the exit code."""
        if self.process is None:
            return 0
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


@dataclass
class LocalFleet:
    """Tasks and decode engines behind one router. ``proxies``: by engine, where the router sees it."""

    tasks: dict[str, LocalTask]
    decoders: dict[str, list[Engine]]
    router: Router
    reference: Reference
    lines: Proxies
    proxies: dict[str, CuttingProxy]
    client: RouterClient = field(init=False)

    def __post_init__(self) -> None:
        self._start()

    def start_router(self) -> None:
        """Another process, on another port, in the place of one that ended."""
        self.close()
        self._start()

    def _start(self) -> None:
        self.router.start(_config(self.tasks.values(), self.decoders, self.proxies))
        self.client = RouterClient(self.router.url, timeout=CLIENT_SECONDS)

    def close(self) -> None:
        """Close the client's connections."""
        self.client.close()

    def score(self, task: str, prompt: Any, answer: Answer, **sampling: Any) -> Scores:
        """What the reference says to a task's answer."""
        return self.reference.score(self.tasks[task].module, prompt, answer.token_ids, **sampling)

    def ask(self, task: str, prompt: Any, *, cuts: Sequence[int] = (), **options: Any) -> Answer:
        """Token ids are completed, messages answered. Each decode leg in turn breaks off after so many events."""
        request_id = uuid.uuid4().hex
        headers = {"x-request-id": request_id}
        self.lines.plan.plan(request_id, cuts)
        answer = self.client.chat if prompt and isinstance(prompt[0], Mapping) else self.client.complete
        return answer(task, prompt, extra_headers=headers, **options)

    def decoder_of(self, answer: Answer) -> Engine:
        """The engine that an answer's header names."""
        return next(e for pool in self.decoders.values() for e in pool if e.name == answer.decode_pod)

    def prompt_tokens(self) -> PromptTokens:
        """Of all decode engines since their start."""
        pods = [engine for pool in self.decoders.values() for engine in pool]
        return sum((prompt_tokens(get_text(f"{pod.url}/metrics")) for pod in pods), start=PromptTokens())

    def resumes(self, **labels: str) -> int:
        """How often the router went on with a stream, so far; ``task`` and ``reason`` choose."""
        return int(self.router.metric("sunfleet_router_resumes_total", **labels))

    def restart(self, engine: Engine) -> None:
        """Start an engine that was killed, behind its old address; its tasks are answered again on return.

        A file names no pod twice, so that the router takes this one for the pod that failed, and tries it with one
        request at a time. On a cluster it has been not ready meanwhile, and is new to the router.
        """
        engine.start()
        engine.wait_ready()
        self.proxies[engine.name].target = engine.port
        for task in self.tasks.values():
            if task.prefill is engine:
                wait_until(f"{task.name} is answered", partial(self._answers, task.name), ROUTER_SECONDS, 0.5)

    def _answers(self, task: str) -> bool:
        try:
            return bool(self.client.complete(task, TRIED, max_tokens=2))
        except APIError:
            return False


@contextmanager
def local_fleet(
    tasks: list[LocalTask], decoders: dict[str, list[Engine]], reference: Reference, folder: Path, **settings: str
) -> Iterator[LocalFleet]:
    """Start everything that is not yet running, side by side; stop it all afterwards."""
    engines = [*{task.prefill.name: task.prefill for task in tasks}.values()]
    engines += [engine for pool in decoders.values() for engine in pool]
    with ExitStack() as stack:
        lines = stack.enter_context(Proxies())
        new = [engine for engine in engines if engine.process is None]
        for engine in new:
            engine.start()
            stack.callback(engine.stop)
        for engine in new:
            engine.wait_ready()
        proxies = {engine.name: _proxied(lines, engine) for engine in engines}
        router = Router(folder, settings)
        stack.callback(router.stop)
        fleet = LocalFleet({task.name: task for task in tasks}, decoders, router, reference, lines, proxies)
        stack.callback(fleet.close)
        yield fleet


def _proxied(lines: Proxies, engine: Engine) -> CuttingProxy:
    proxy = lines.make(cuts=engine.role == names.ROLE_DECODE)
    proxy.target = engine.port
    return proxy


def _config(
    tasks: Iterable[LocalTask], decoders: dict[str, list[Engine]], proxies: Mapping[str, CuttingProxy]
) -> dict[str, Any]:
    """The router's fleet file."""
    return {
        "decoders": [
            {"name": pool, "endpoints": [_endpoint(engine, proxies) for engine in engines]}
            for pool, engines in decoders.items()
        ],
        "tasks": [
            {
                "name": task.name,
                "decoder": task.pool,
                "cacheSalt": task.salt,
                "prefill": [_endpoint(task.prefill, proxies)],
                "traffic": TRAFFIC,
            }
            for task in tasks
        ],
    }


def _endpoint(engine: Engine, proxies: Mapping[str, CuttingProxy]) -> dict[str, str]:
    return {"name": engine.name, "url": f"http://127.0.0.1:{proxies[engine.name].port}"}
