"""A router on real sockets, in the test's process, in front of fake engines in theirs."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from sunfleet_fakes.harness import FakeEngine
from sunfleet_router.server import Parts, assemble_parts, serve
from sunfleet_router.settings import RouterSettings

HOST = "127.0.0.1"
FINGERPRINT = "f" * 32
SALT = "5a17"


@dataclass(frozen=True)
class Engines:
    """Two prefill pods of one task, one of another, two decode pods."""

    maths: FakeEngine
    maths_too: FakeEngine
    code: FakeEngine
    decode: FakeEngine
    decode_too: FakeEngine

    def all(self) -> tuple[FakeEngine, ...]:
        return self.maths, self.maths_too, self.code, self.decode, self.decode_too

    def configure_prefills(self, **fields: Any) -> None:
        for engine in (self.maths, self.maths_too):
            engine.configure(**fields)

    def configure_decoders(self, **fields: Any) -> None:
        for engine in (self.decode, self.decode_too):
            engine.configure(**fields)

    def prefill_requests(self) -> list[dict[str, Any]]:
        return self.maths.requests() + self.maths_too.requests()

    def decode_requests(self) -> list[dict[str, Any]]:
        return self.decode.requests() + self.decode_too.requests()


@dataclass(frozen=True)
class Router:
    """A running router; ``parts`` are its books."""

    url: str
    parts: Parts
    stop: asyncio.Event
    http: aiohttp.ClientSession
    task: asyncio.Task[None]

    async def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        """(status, decoded JSON)."""
        async with self.http.post(self.url + path, json=body, headers=headers) as answer:
            return answer.status, await answer.json(content_type=None)

    async def stream(self, path: str, body: dict[str, Any]) -> str:
        """The whole event stream as text."""
        async with self.http.post(self.url + path, json={**body, "stream": True}) as answer:
            assert answer.status == 200, await answer.text()
            assert answer.content_type == "text/event-stream"
            return (await answer.read()).decode()

    async def settled(self, seconds: float = 3.0) -> None:
        """Wait until every counter is back to 0."""
        parts = self.parts

        def busy() -> dict[str, Any]:
            books = {
                "requests": dict(parts.load.requests),
                "prefill_tokens": dict(parts.load.prefill_tokens),
                "reserved": dict(parts.admission.reserved),
                "waiting": dict(parts.admission.waiting.requests),
                "waiting_tokens": dict(parts.admission.waiting.tokens),
                "queued_tokens": dict(parts.admission.queued_tokens),
                "decodes": dict(parts.load.decodes),
                "keys": dict(parts.gate.keys),
                "desk": parts.desk.in_flight,
                "releases": parts.releaser.pending,
                "upstream": parts.upstream.open_connections - parts.upstream.idle_connections,
            }
            return {name: value for name, value in books.items() if value}

        deadline = asyncio.get_running_loop().time() + seconds
        while left := busy():
            assert asyncio.get_running_loop().time() < deadline, f"counters did not go back: {left}"
            await asyncio.sleep(0.01)


def fleet_file(engines: Engines, **traffic: Any) -> dict[str, Any]:
    """The static fleet of most tests; ``traffic`` is that of the task ``acme/maths``."""
    return {
        "decoders": [
            {"name": "local/base", "endpoints": [_endpoint(engines.decode, "d0"), _endpoint(engines.decode_too, "d1")]},
            {"name": "local/none"},
        ],
        "tasks": [
            {
                "name": "acme/maths",
                "decoder": "local/base",
                "cacheSalt": SALT,
                "prefill": [_endpoint(engines.maths, "p0"), _endpoint(engines.maths_too, "p1")],
                "traffic": traffic,
            },
            {"name": "code", "decoder": "local/base", "cacheSalt": "c0de", "prefill": [_endpoint(engines.code, "p2")]},
            {"name": "asleep", "decoder": "local/base"},
            {"name": "undecoded", "decoder": "local/none", "prefill": [_endpoint(engines.code, "p2")]},
        ],
    }


def _endpoint(engine: FakeEngine, name: str) -> dict[str, Any]:
    info = {
        "role": engine.role, "kv_capacity_tokens": 16_384, "block_size": 16, "max_model_len": 2048,
        "kv_fingerprint": FINGERPRINT, "tells_progress": engine.role == "decode",
    }  # fmt: skip
    return {"url": engine.url, "name": name, "info": info}


class RouterFactory:
    """Starts routers for one test, and checks at its end that their books are empty."""

    def __init__(self, engines: Engines, folder: Path, stack: AsyncExitStack, sockets: str = "auto") -> None:
        self._engines = engines
        self._folder = folder
        self._stack = stack
        self._sockets = sockets
        self.running: list[Router] = []

    async def __call__(
        self,
        *,
        fleet: Any = None,
        settings: dict[str, Any] | None = None,
        trust: ssl.SSLContext | None = None,
        **traffic: Any,
    ) -> Router:
        """``trust``: of a router whose settings give it a certificate."""
        config = self._folder / f"fleet-{len(self.running)}.yaml"
        config.write_text(yaml.safe_dump(fleet or fleet_file(self._engines, **traffic)), encoding="utf-8")
        chosen = {
            "config": config, "host": HOST, "metrics_port": 0, "connect_timeout": 1.0, "info_interval": 0.05,
            "pod_headers": True, "authentication": "disabled", "drain_timeout": 5.0, "suspect_seconds": 0.2,
            "resume_pause": 0.02, "scrape_interval": 0, "sockets": self._sockets,
        }  # fmt: skip
        parts = assemble_parts(RouterSettings(**{**chosen, **(settings or {})}))
        listener = socket.create_server((HOST, 0))
        stop = asyncio.Event()
        task = asyncio.get_running_loop().create_task(serve(parts, stop, listener))
        connector = aiohttp.TCPConnector(limit=0, ssl=trust or True)
        http = await self._stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        scheme = "https" if trust else "http"
        router = Router(f"{scheme}://{HOST}:{listener.getsockname()[1]}", parts, stop, http, task)
        self.running.append(router)
        await _ready(router)
        return router


async def _ready(router: Router) -> None:
    for _ in range(400):
        async with router.http.get(router.url + "/readyz") as answer:
            if answer.status == 200:
                return
        await asyncio.sleep(0.02)
    raise AssertionError("the router did not become ready")
