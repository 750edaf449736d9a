"""One HTTP/1.1 connection to an engine: writes a request, hands the answer's parts to a sink as the socket delivers
them.

The sink is called from the event loop's read callback, one call per read however many chunks it held: a token costs no
task switch here. Parsing is httptools' (llhttp), but for answers that come plain and whole; this module only keeps its
events in order and knows when a connection can be used again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, cast

import httptools

from sunfleet_router.transport import plain

if TYPE_CHECKING:
    from sunfleet_router._pump import Transport

    Client = tuple[Transport, bool]  # a client's connection on the pump, and whether it gets chunks


class UpstreamError(Exception):
    """The exchange cannot be completed; the text is for the log and holds no address."""


class ConnectFailedError(UpstreamError):
    """No connection could be made: the request was never sent."""


class ConnectTimeoutError(ConnectFailedError):
    """Nobody has taken the connection in time."""


class ConnectionCutError(UpstreamError):
    """The engine closed the connection, or the network did, before the answer was complete.

    ``stale``: it had idled and nothing of an answer came, so the engine most likely closed it before it saw the
    request.
    """

    def __init__(self, message: str, *, stale: bool = False) -> None:
        super().__init__(message)
        self.stale = stale


class BadFramingError(UpstreamError):
    """What came is not HTTP."""


class Sink(Protocol):
    """Takes one answer: a head, any number of data, then exactly one of end and lost."""

    def on_head(self, status: int) -> None:
        """The answer has begun."""

    def on_data(self, data: bytes) -> None:
        """Body bytes, without framing."""

    def on_end(self) -> None:
        """The answer is complete."""

    def on_whole(self, status: int, body: bytes) -> None:
        """All of these at once."""

    def on_lost(self, error: UpstreamError) -> None:
        """The answer will not be completed."""


class Connection(asyncio.Protocol):
    """Reusable for one exchange after the other; ``on_idle`` is told when it is free again."""

    __slots__ = (
        "_answering", "_complete", "_head_ready", "_keep_alive", "_loop", "_parser", "_parts", "_paused", "_reused",
        "_sink", "_transport", "idle_since", "pool",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._sink: Sink | None = None
        self._parts: list[bytes] = []
        self._head_ready = False
        self._complete = False
        self._keep_alive = False
        self._reused = False
        self._paused = False
        self._answering = False
        self.idle_since = 0.0
        self.pool: Pool | None = None

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, head: bytes, body: bytes, sink: Sink) -> None:
        """Write one request; the answer goes to ``sink``. The connection must be usable and idle."""
        if self._transport is None:
            raise ConnectionCutError("not connected")
        self._sink = sink
        self._transport.writelines((head, body))

    def abort(self) -> None:
        """Give the exchange up: the engine sees its client leave. The sink hears nothing more."""
        self._sink = None
        if self._transport is not None:
            self._transport.abort()

    def cut(self) -> None:
        """End it from our side; the sink hears that its answer will not be completed."""
        self._fail(ConnectionCutError("the router closed the connection"))

    def hand_over(self, sink: Sink, client: Client | None) -> None:
        """The first events of ``sink``'s stream have gone to its client. A connection that can move the rest by itself
        (:mod:`sunfleet_router.engines.relaying`) does so from now on.
        """

    def pause(self) -> None:
        """Read no more for now: the client takes its answer more slowly than the engine makes it."""
        self._paused = True
        if self.usable and self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        self._paused = False
        if self.usable and self._transport is not None:
            self._transport.resume_reading()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one by shape only

    def data_received(self, data: bytes) -> None:
        sink = self._sink
        if sink is None:
            self.abort()  # an answer that nobody asked for: the framing cannot be trusted any more
            return
        if not self._answering and (whole := plain.answer(data)) is not None:
            self._keep_alive = True
            sink.on_whole(*whole)
            self._free()
            return
        failure: UpstreamError | None = None
        self._answering = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            failure = BadFramingError("the answer is not valid HTTP")
        self._deliver(sink)
        if failure is not None:
            self._fail(failure)
        elif self._complete:
            self._free()
            sink.on_end()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 asyncio.Protocol names it
        self._transport = None
        if self.pool is not None:
            self.pool.forget(self)
        stale = self._reused and not self._answering
        self._fail(ConnectionCutError("the connection was closed before the answer was complete", stale=stale))

    # httptools callbacks: only note what happened, so that a sink's error is never taken for a parser's

    def on_headers_complete(self) -> None:
        if self._parser.get_status_code() >= 200:  # 1xx answers are preliminary
            self._head_ready = True

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() >= 200:
            self._complete = True
            self._keep_alive = self._parser.should_keep_alive()

    # internals

    def _deliver(self, sink: Sink) -> None:
        if self._head_ready:
            self._head_ready = False
            sink.on_head(self._parser.get_status_code())
        if self._parts:
            parts, self._parts = self._parts, []
            sink.on_data(parts[0] if len(parts) == 1 else b"".join(parts))

    def _free(self) -> None:
        """The answer is complete: the connection is of use again, if it may be."""
        self._sink, self._complete = None, False
        self._reused, self._answering = True, False
        if self._paused:
            self.resume()  # a slow client of this answer must not hold back the next one
        if self._keep_alive and self.pool is not None:
            self.idle_since = self._loop.time()
            self.pool.release(self)
        elif self._transport is not None:
            self._transport.close()

    def _fail(self, error: UpstreamError) -> None:
        sink, self._sink = self._sink, None
        if self._transport is not None:
            self._transport.abort()
        if sink is not None:
            sink.on_lost(error)


class Pool(Protocol):
    """Where a connection goes between exchanges."""

    def release(self, connection: Connection) -> None: ...

    def forget(self, connection: Connection) -> None: ...
