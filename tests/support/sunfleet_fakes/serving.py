"""An ASGI application on a free port of this machine, in a thread of the test."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import uvicorn
from starlette.applications import Starlette

_ORDERLY_SECONDS = 1
_STOP_SECONDS = 10


class Serving:
    """Serves while it is entered; ``certificate`` holds key and certificate for TLS."""

    def __init__(self, app: Starlette, certificate: Path | None = None) -> None:
        self._scheme = "https" if certificate else "http"
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen()
        config = uvicorn.Config(
            app,
            log_level="critical",
            lifespan="off",
            ws="none",
            loop="asyncio",
            ssl_certfile=certificate,
            ssl_keyfile=certificate,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)

    @property
    def host(self) -> str:
        """Address and port."""
        return f"127.0.0.1:{self._socket.getsockname()[1]}"

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"{self._scheme}://{self.host}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True  # in an orderly way, which closes what clients keep open
        self._thread.join(_ORDERLY_SECONDS)
        self._server.force_exit = True  # answers may be waiting on purpose
        self._thread.join(_STOP_SECONDS)
        self._socket.close()
