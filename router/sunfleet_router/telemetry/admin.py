"""The admin port: the operator asks here which routes this router acts on. Nobody else has business with it."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from socketserver import ThreadingMixIn
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIEnvironment

from sunfleet_api.routes import PATH
from sunfleet_router.fleet.current import Fleet
from sunfleet_router.fleet.snapshot import Snapshot
from sunfleet_router.fleet.taken import routes_of

logger = logging.getLogger(__name__)

_SILENCE = 5.0  # seconds


class RoutesPage:
    """A WSGI application: ``GET`` :data:`sunfleet_api.routes.PATH`. The answer is made once for each snapshot, by
    threads that do not replace snapshots, which are frozen."""

    def __init__(self, fleet: Fleet, namespaces: Sequence[str]) -> None:
        self._fleet, self._namespaces = fleet, tuple(namespaces)
        self._made: tuple[Snapshot | None, bytes] = (None, b"")

    def body(self) -> bytes:
        """JSON, of the routes of now."""
        snapshot, (of, made) = self._fleet.snapshot, self._made
        if of is not snapshot:
            made = routes_of(snapshot, self._namespaces).model_dump_json().encode()
            self._made = (snapshot, made)
        return made

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        found = environ["PATH_INFO"] == PATH
        status = HTTPStatus.OK if found else HTTPStatus.NOT_FOUND
        body = self.body() if found else b"{}"
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        start_response(f"{status.value} {status.phrase}", headers)
        return [body]


class _Handler(WSGIRequestHandler):
    timeout = _SILENCE

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the library's
        """The operator asks often, and that is no news."""


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each connection: one that says nothing holds up neither the others nor the end."""

    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 the library's
        """A connection that said nothing, or left: not worth a traceback on stderr."""
        logger.debug("admin port: %s", client_address)


class _Server6(_Server):
    address_family = socket.AF_INET6


def serve(port: int, host: str, page: RoutesPage) -> tuple[WSGIServer, Thread]:
    """Answer on ``port`` (0: any free one) in a thread of its own."""
    server = make_server(host, port, page, _Server6 if ":" in host else _Server, _Handler)
    thread = Thread(target=server.serve_forever, name="admin", daemon=True)
    thread.start()
    return server, thread


def end(server: WSGIServer, thread: Thread) -> None:
    """Blocks until it has ended."""
    server.shutdown()
    server.server_close()
    thread.join()
