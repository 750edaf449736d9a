"""The server: HTTP/1.1 over asyncio, for one process's worth of clients.

A request that comes in one piece, as most do, costs one task and no waiting. Paths in ``direct`` go to their raw ASGI
endpoint at once; all others through the application's own layers. Parsing is httptools' (llhttp), but for requests that
come plain and whole. Why not uvicorn: ``docs/router.md``.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote

import httptools
import orjson
from starlette.types import ASGIApp

from sunfleet_router.errors import InternalError, InvalidRequestError
from sunfleet_router.transport import plain
from sunfleet_router.transport.exchange import Exchange, Header, Inbox
from sunfleet_router.transport.pump import on_pump
from sunfleet_router.transport.sockets import AsyncioSockets, Listening, Sockets

if TYPE_CHECKING:
    from sunfleet_router._pump import Transport

logger = logging.getLogger(__name__)

Request = tuple[ASGIApp, dict[str, Any], Exchange]

_MOST_HEAD: Final = 64 << 10  # bytes of a request line and its headers
_MOST_UNREAD: Final = 64 << 10  # bytes of a body that the application has not asked for
_SWEEP: Final = 5.0  # seconds between looks for connections that idle
_LINGER: Final = 1.0  # seconds that a client gets to read why its request was not read to the end
_JSON: Final = (b"content-type", b"application/json")
_ASGI: Final = {"version": "3.0", "spec_version": "2.3"}


class Front:
    """One per process. ``keep_alive``: seconds after which an idle connection is closed."""

    def __init__(
        self, app: ASGIApp, direct: Mapping[bytes, ASGIApp], *, keep_alive: float, sockets: Sockets | None = None
    ) -> None:
        self.app = app
        self.direct = direct
        self._keep_alive = keep_alive
        self._sockets = sockets or AsyncioSockets()
        self._server: Listening | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self.connections: set[ClientConnection] = set()
        self.tasks: dict[Exchange, asyncio.Task[None]] = {}
        self.closing = False

    async def start(
        self, host: str, port: int, listener: socket.socket | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        """Listen; on ``listener`` instead if it is given."""
        loop = asyncio.get_running_loop()
        self._server = await self._sockets.listen(self._connection, host, port, listener, tls)
        self._sweeper = loop.create_task(self._sweep())

    async def stop(self, patience: float) -> None:
        """Take no more connections, close idle ones, and give the others ``patience`` seconds for their answers."""
        self.closing = True
        if self._server is not None:
            self._server.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in tuple(self.connections):
            connection.close_when_idle()
        if self.tasks:
            await asyncio.wait(self.tasks.values(), timeout=patience)
        for connection in tuple(self.connections):
            connection.close_now()

    async def serve(self, app: ASGIApp, scope: dict[str, Any], exchange: Exchange) -> None:
        """One request, in a task of its own."""
        try:
            await app(scope, exchange.inbox, exchange)
        except Exception:  # whatever a bug raises, the client gets an error object and no stack trace
            logger.exception("serving %s failed", scope["path"])
            if not exchange.started:
                answer(exchange, 500, InternalError().to_json())
        finally:
            del self.tasks[exchange]  # not by the task's callback, which would be another turn of the loop
        exchange.abandon()  # unless it is complete

    def _connection(self) -> ClientConnection:
        return ClientConnection(self, asyncio.get_running_loop())

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP)
            oldest = loop.time() - self._keep_alive
            for connection in tuple(self.connections):
                connection.close_if_idle_since(oldest)


def answer(exchange: Exchange, status: int, body: bytes, *more: Header) -> None:
    """A whole JSON answer."""
    exchange.begin(status, (_JSON, (b"content-length", b"%d" % len(body)), *more))
    exchange.end(body)


class ClientConnection(asyncio.Protocol):
    """One client's connection: requests one after the other; those that come too early wait."""

    __slots__ = (
        "_arriving", "_begun", "_current", "_deaf", "_expects", "_front", "_headers", "_in_head", "_last", "_loop",
        "_parser", "_paused", "_reading", "_since", "_transport", "_unread", "_url", "_waiting", "blocked", "pump",
    )  # fmt: skip

    def __init__(self, front: Front, loop: asyncio.AbstractEventLoop) -> None:
        self._front = front
        self._loop = loop
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._current: Exchange | None = None
        self._waiting: deque[Request] = deque()
        self._arriving: Request | None = None  # its head is there
        self._reading: Inbox | None = None  # of the request whose body is not whole
        self._since = loop.time()  # of the last byte, or of the last answer's end
        self._paused = False
        self._begun = False  # whether a request's first byte was in this read
        self._in_head = False
        self._last = False  # a request has ended the connection: what comes behind it the parser refuses
        self._deaf = False  # nothing that still comes is looked at
        self._new_request()
        self.blocked = False
        self.pump: Transport | None = None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.pump = on_pump(transport)
        self._front.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 asyncio.Protocol names it
        self._transport = None
        self._front.connections.discard(self)
        self._waiting.clear()
        if self._current is not None:
            self._current.lost()

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._since = self._loop.time()
        between = self._reading is None and not self._in_head and not self._last
        if between and (whole := plain.request(data)) is not None:
            self._take(*whole)
            return
        self._begun = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._deaf = True  # nobody upgrades here: this request is served, what follows it is not read
        except httptools.HttpParserError:
            self._refuse(400, "The request is not valid HTTP/1.1.")
            return
        if self._arriving is not None:
            self._serve_early()
        if self._reading is not None:
            if self._reading.size > _MOST_UNREAD:
                self._pause()
        elif self._in_head and not self._begun:
            self._unread += len(data)
            if self._unread > _MOST_HEAD:
                self._refuse(431, f"The request's head exceeds {_MOST_HEAD} bytes.")

    def pause_writing(self) -> None:
        self.blocked = True

    def resume_writing(self) -> None:
        self.blocked = False
        if self._current is not None:
            self._current.has_room()

    # exchange.Wire

    def put(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def finished(self, *, keep: bool) -> None:
        ended, self._current = self._current, None
        self._since = self._loop.time()
        if self._transport is None:
            return
        if self._deaf or (ended is not None and not ended.inbox.whole):
            # Closed at once it would be reset, for there is more to read, and the client might never see its answer.
            self._deaf = True
            self._resume()
            self._loop.call_later(_LINGER, self.close_now)
        elif not keep or self._front.closing:
            self._deaf = True
            self._transport.close()
        elif self._waiting:
            self._start(*self._waiting.popleft())
        if self._paused and not self._waiting:
            self._resume()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # the server's housekeeping

    def close_when_idle(self) -> None:
        if self._current is None:
            self.close_now()

    def close_now(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def close_if_idle_since(self, oldest: float) -> None:
        """Nothing under way, or a request that does not come to its end, or an answer that nobody fetches."""
        served = self._current is not None and self._reading is None
        if not served and self._since < oldest:
            self.abort()

    def _take(self, method: str, target: bytes, headers: list[Header], body: bytes) -> None:
        """A plain request, whole."""
        front, exchange = self._front, Exchange(self, Inbox(body))
        app = (front.direct.get(target) if method == "POST" else None) or front.app
        if self._current is None:
            self._start(app, _scope(method, target, headers), exchange)
        else:
            self._serve((app, _scope(method, target, headers), exchange))

    # httptools callbacks

    def on_message_begin(self) -> None:
        self._begun = self._in_head = True
        self._new_request()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self._headers.append((name, value))
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects = True

    def on_headers_complete(self) -> None:
        self._in_head = False
        parser = self._parser
        method, old = parser.get_method(), parser.get_http_version() == "1.0"
        keep = not old and parser.should_keep_alive()
        self._last = not keep
        self._reading = Inbox()
        exchange = Exchange(self, self._reading, persistent=keep, old=old, head=method == b"HEAD")
        direct = self._front.direct.get(self._url) if method == b"POST" else None
        scope = _scope(method.decode("ascii"), self._url, self._headers)
        self._arriving = (direct or self._front.app, scope, exchange)
        if self._expects and self._current is None:
            self.put(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        if self._reading is not None:
            self._reading.feed(body)

    def on_message_complete(self) -> None:
        if self._reading is not None:
            self._reading.finish()
            self._reading = None
        if self._arriving is not None:
            request, self._arriving = self._arriving, None
            self._serve(request)

    # internals

    def _new_request(self) -> None:
        self._url = b""
        self._headers: list[Header] = []
        self._unread = 0  # bytes of a head that is not complete
        self._expects = False

    def _serve_early(self) -> None:
        """The rest of the body comes later: the application decides whether it wants it."""
        request, self._arriving = self._arriving, None
        if request is None or self._reading is None:
            return
        self._reading.on_taken = self._resume
        self._serve(request)

    def _serve(self, request: Request) -> None:
        if self._deaf:
            return
        if self._current is None:
            self._start(*request)
        else:
            self._waiting.append(request)
            self._pause()

    def _start(self, app: ASGIApp, scope: dict[str, Any], exchange: Exchange) -> None:
        self._current, front = exchange, self._front
        exchange.inbox.work = work = self._loop.create_task(front.serve(app, scope, exchange))
        front.tasks[exchange] = work

    def _pause(self) -> None:
        if self._transport is not None and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._transport is not None and self._paused:
            self._paused = False
            self._transport.resume_reading()

    def _refuse(self, status: int, message: str) -> None:
        """The connection cannot be read any further."""
        self._deaf = True
        if self._current is not None:
            if self._reading is not None:
                self.abort()  # its body will not come to an end
            return  # its answer comes first, and closes the connection
        exchange = Exchange(self, Inbox(), persistent=False)
        answer(exchange, status, orjson.dumps(InvalidRequestError(message).to_object()))


def _scope(method: str, target: bytes, headers: list[Header]) -> dict[str, Any]:
    raw, _, query = target.partition(b"?")
    path = raw.decode("latin-1")
    return {
        "type": "http", "asgi": _ASGI, "http_version": "1.1", "method": method, "scheme": "http",
        "path": unquote(path) if "%" in path else path, "raw_path": raw, "query_string": query, "root_path": "",
        "headers": headers, "client": None, "server": None,
    }  # fmt: skip
