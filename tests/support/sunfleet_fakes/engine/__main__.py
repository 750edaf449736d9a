"""Run a fake engine: ``python -m sunfleet_fakes.engine``, settings from the environment.

Port 0 takes a free one. The first line on standard output says, as JSON, where it listens. SIGTERM drains: new requests
get a 503, running ones finish, leased KV waits for its decoder; then the process exits with 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import struct
import sys
from collections.abc import Iterator
from types import FrameType

import uvicorn
from starlette.applications import Starlette
from starlette.types import Scope

from sunfleet_api.worker import WorkerSettings
from sunfleet_fakes.engine.app import create_app
from sunfleet_fakes.engine.behaviour import FakeSettings
from sunfleet_fakes.engine.state import Engine


class DrainingServer(uvicorn.Server):
    """Leaves on SIGTERM when the engine has nothing left to do, with exit code 0."""

    def __init__(self, config: uvicorn.Config, engine: Engine) -> None:
        super().__init__(config)
        self._engine = engine
        self._terminated = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """First SIGTERM: drain. Second, or SIGINT: leave at once."""
        if sig != signal.SIGTERM or self._engine.draining:
            self.should_exit = True
        self._engine.draining = True
        self._loop.call_soon_threadsafe(self._terminated.set)

    async def drain(self) -> None:
        """Wait for the signal, then for the work, at most as long as the settings say."""
        await self._terminated.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._engine.idle(), self._engine.settings.drain_timeout_seconds)
        self.should_exit = True

    def reset(self, scope: Scope) -> None:
        """Close the connection of a request with a RST."""
        for protocol in list(self.server_state.connections):
            transport = protocol.transport
            if isinstance(transport, asyncio.Transport) and getattr(protocol, "client", None) == scope["client"]:
                linger = struct.pack("ii", 1, 0)
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                transport.abort()


class SecondServer(uvicorn.Server):
    """Serves for as long as the first one does, and leaves the signals to it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None of them."""
        yield


async def run(settings: WorkerSettings, fake: FakeSettings) -> None:
    """Serve until drained."""
    await asyncio.sleep(fake.start_seconds)
    engine = Engine(settings, fake)
    api, sockets = _listen(fake.host, settings.port), [_listen(fake.host, settings.side_channel_port)]
    port, engine.side_channel_port = (sock.getsockname()[1] for sock in (api, *sockets))
    if settings.metrics_port:
        sockets.append(_listen(fake.host, settings.metrics_port))
    if engine.adapters is not None:
        sockets.append(_listen(fake.host, settings.admin_port))
        engine.admin_port = sockets[-1].getsockname()[1]

    def reset(scope: Scope) -> None:
        server.reset(scope)

    app, folder = create_app(engine, reset), settings.tls_path
    server = DrainingServer(_config(app, folder), engine)
    others = SecondServer(_config(app))
    where = {
        "port": port, "side_channel_port": engine.side_channel_port, "identity": engine.identity,
        "admin_port": engine.admin_port,
    }  # fmt: skip
    print(json.dumps(where), flush=True)
    drain = asyncio.create_task(server.drain())
    beside = asyncio.create_task(others.serve(sockets=sockets))
    await server.serve(sockets=[api])
    others.should_exit = True
    await beside
    drain.cancel()


def _config(app: Starlette, tls: str = "") -> uvicorn.Config:
    """``tls``: folder with tls.crt and tls.key."""
    return uvicorn.Config(
        app,
        loop="asyncio",
        lifespan="off",
        ws="none",
        log_level="warning",
        timeout_keep_alive=75,
        timeout_graceful_shutdown=1,
        ssl_certfile=f"{tls}/tls.crt" if tls else None,
        ssl_keyfile=f"{tls}/tls.key" if tls else None,
    )


def _listen(host: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((host, port))
    sock.listen(2048)  # from now on connections wait instead of being refused
    return sock


def main() -> int:
    """Entry point."""
    asyncio.run(run(WorkerSettings(), FakeSettings()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
