"""The HTTP client of the process: connections to engines, kept between requests, and the two ways to use one.

``fetch`` reads a whole answer, ``start`` hands it to a sink as it comes. There is no cap on connections: admission
bounds the work, and a hidden cap would make requests wait where no metric shows it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass

from sunfleet_router.engines.phases import phase
from sunfleet_router.engines.relaying import RelayingConnection
from sunfleet_router.fleet.snapshot import Endpoint
from sunfleet_router.transport.connection import (
    ConnectFailedError,
    Connection,
    ConnectionCutError,
    ConnectTimeoutError,
    Sink,
    UpstreamError,
)
from sunfleet_router.transport.credentials import Credentials
from sunfleet_router.transport.sockets import AsyncioSockets, Sockets, Tls

Address = tuple[str, int]


class AnswerTooLargeError(UpstreamError):
    """The engine's answer exceeds what the router is willing to hold."""


@dataclass(slots=True)  # not frozen, see Ask
class Reply:
    """A whole answer."""

    status: int
    body: bytes


class Upstream:
    """One per process. ``connect_timeout`` and ``idle_timeout`` in seconds."""

    def __init__(
        self, *, connect_timeout: float, idle_timeout: float, credentials: Credentials | None = None,
        sockets: Sockets | None = None,
    ) -> None:  # fmt: skip
        self._credentials = credentials
        self._sockets = sockets or AsyncioSockets()
        self._connect_timeout = connect_timeout
        self._idle_timeout = idle_timeout
        self._idle: dict[Address, list[Connection]] = {}
        self._addresses: dict[Connection, Address] = {}

    async def fetch(
        self, endpoint: Endpoint, path: str, headers: Mapping[str, str], body: bytes | None, *,
        limit: int, resend: bool, connect: float | None = None, within: phase | None = None,
    ) -> Reply:  # fmt: skip
        """One whole answer of at most ``limit`` bytes. ``body=None`` is a GET. Cancelling it ends the exchange at once.

        ``resend``: the request may be sent twice, so one that met a stale connection goes out again on a new one.
        ``connect``: seconds for a new connection, in place of the usual ones. ``within``: the time for all of it.
        """
        address, head = (endpoint.host, endpoint.port), self._head(endpoint, path, headers, body)
        loop = asyncio.get_running_loop()
        while True:
            connection = self._take(address, loop)
            if connection is None:
                with within or nullcontext():
                    connection = await self._connect(address, connect or self._connect_timeout)
            sink = _WholeAnswer(loop, limit)
            timer = None if within is None else within.limit(loop, sink.reply)
            try:
                connection.send(head, body or b"", sink)
                return await sink.reply
            except ConnectionCutError as cut:
                if not (resend and cut.stale):
                    raise
                resend = False
                self._drop_idle(address)
            finally:
                if timer is not None:
                    timer.cancel()
                if not sink.over:
                    connection.abort()

    async def start(
        self, endpoint: Endpoint, path: str, headers: Mapping[str, str], body: bytes | None, sink: Sink,
        connect: float | None = None,
    ) -> Connection:  # fmt: skip
        """Send a request whose answer goes to ``sink``; the caller aborts the connection to stop listening."""
        address = endpoint.host, endpoint.port
        connection = self._take(address, asyncio.get_running_loop()) or await self._connect(
            address, connect or self._connect_timeout
        )
        connection.send(self._head(endpoint, path, headers, body), body or b"", sink)
        return connection

    def _head(self, endpoint: Endpoint, path: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        head = _beginning(endpoint.host, endpoint.port, path, posts=body is not None)
        if body is not None:
            head += f"content-length: {len(body)}\r\n"
        if self._credentials is not None and self._credentials.engine_key:
            headers = {**headers, "authorization": f"Bearer {self._credentials.engine_key}"}
        for name in headers:
            head += f"{name}: {headers[name]}\r\n"
        return f"{head}\r\n".encode("latin-1")

    def close(self) -> None:
        """End every connection; exchanges in progress hear that theirs was cut."""
        for connection in list(self._addresses):
            connection.cut()

    @property
    def open_connections(self) -> int:
        return len(self._addresses)

    @property
    def idle_connections(self) -> int:
        return sum(len(idle) for idle in self._idle.values())

    # connection.Pool

    def release(self, connection: Connection) -> None:
        self._idle.setdefault(self._addresses[connection], []).append(connection)

    def forget(self, connection: Connection) -> None:
        address = self._addresses.pop(connection, None)
        if address is None:
            return
        idle = self._idle.get(address, [])
        if connection in idle:
            idle.remove(connection)
        if not idle:
            self._idle.pop(address, None)

    def _take(self, address: Address, loop: asyncio.AbstractEventLoop) -> Connection | None:
        """The connection that was used last; ones that idled long enough to be closed by the engine are dropped."""
        idle = self._idle.get(address)
        oldest = loop.time() - self._idle_timeout if idle else 0.0
        while idle:
            connection = idle.pop()
            if connection.usable and connection.idle_since >= oldest:
                return connection
            connection.abort()
        return None

    def _drop_idle(self, address: Address) -> None:
        for connection in list(self._idle.get(address, ())):
            connection.abort()
        self._idle.pop(address, None)

    def _tls(self) -> Tls | None:
        if self._credentials is None or self._credentials.to_engines is None:
            return None
        return Tls(self._credentials.to_engines, self._credentials.engine_name)

    async def _connect(self, address: Address, seconds: float) -> Connection:
        tls = self._tls()
        kind = RelayingConnection if self._sockets.relays and tls is None else Connection
        make = functools.partial(kind, asyncio.get_running_loop())
        try:
            async with asyncio.timeout(seconds):
                connection: Connection = await self._sockets.connect(make, *address, tls)
        except TimeoutError:
            raise ConnectTimeoutError(f"no connection within {seconds:g} s") from None
        except OSError as error:
            raise ConnectFailedError(f"no connection: {error.strerror or type(error).__name__}") from error
        if not connection.usable:
            raise ConnectionCutError("closed as soon as it was opened")
        self._addresses[connection] = address
        connection.pool = self
        return connection


@functools.lru_cache(maxsize=4096)
def _beginning(host: str, port: int, path: str, *, posts: bool) -> str:
    """What every request to one path of one pod begins with."""
    name = f"[{host}]" if ":" in host else host
    kind = "content-type: application/json\r\n" if posts else ""
    return f"{'POST' if posts else 'GET'} {path} HTTP/1.1\r\nhost: {name}:{port}\r\n{kind}"


class _WholeAnswer:
    """A sink that collects."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int) -> None:
        self.reply: asyncio.Future[Reply] = loop.create_future()
        self.over = False  # the exchange has ended by itself: nothing to abort
        self._limit = limit
        self._status = 0
        self._body = b""
        self._parts: list[bytes] = []
        self._size = 0

    def on_head(self, status: int) -> None:
        self._status = status

    def on_data(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._limit:
            self._settle(AnswerTooLargeError(f"the answer exceeds {self._limit} bytes"))
        elif not self._body:
            self._body = data  # mostly all of it
        else:
            self._parts.append(data)

    def on_whole(self, status: int, body: bytes) -> None:
        self.over = True
        if len(body) > self._limit:
            self.on_data(body)
        elif not self.reply.done():
            self.reply.set_result(Reply(status, body))

    def on_end(self) -> None:
        self.over = True
        if not self.reply.done():
            body = b"".join((self._body, *self._parts)) if self._parts else self._body
            self.reply.set_result(Reply(self._status, body))

    def on_lost(self, error: UpstreamError) -> None:
        self.over = True
        self._settle(error)

    def _settle(self, error: UpstreamError) -> None:
        if not self.reply.done():
            self.reply.set_exception(error)
            self.reply.exception()  # looked at: a request that was cancelled meanwhile must not leave a warning
