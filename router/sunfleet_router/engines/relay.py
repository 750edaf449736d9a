"""Moves one decode stream from the engine's socket to the client's, a read at a time and unread.

``Relay`` is the sink of one decode leg, ``ClientStream`` the other end, which outlives it: a resume is another relay
into the same client's stream. What the engine says to the router alone, progress lines and its own error event, stops
here; the client gets whole events only, so that at any break another leg can go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, MutableMapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from sunfleet_router.bodies import sse
from sunfleet_router.transport.connection import BadFramingError, ConnectionCutError, UpstreamError
from sunfleet_router.transport.exchange import Exchange

if TYPE_CHECKING:
    from sunfleet_router._pump import Transport

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_MAX_EVENT: Final = 16 << 20  # bytes of one event; more is no event stream


class EngineEndedError(UpstreamError):
    """The engine ended the stream itself; ``event`` is its error event."""

    def __init__(self, event: bytes) -> None:
        super().__init__("the engine ended the stream with an error")
        self.event = event


class Throttle(Protocol):
    """The connection that feeds a relay."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class ClientStream:
    """The body of a streamed answer. ``push`` may be called from a read callback and costs no task switch.

    On our own server bytes go straight to the client's connection. Any other ``send`` is ASGI's, which only suspends
    when the client's socket is full. So its coroutine is stepped once, in place; if it did suspend, a task finishes it.
    Either way the engine's side is told to pause meanwhile: memory holds one read, not the backlog.
    """

    __slots__ = ("_drain", "_exchange", "_feed", "_send", "_waiting")

    def __init__(self, send: Send) -> None:
        self._send = send
        self._exchange = send if isinstance(send, Exchange) else None
        self._feed: Throttle | None = None
        self._drain: asyncio.Task[None] | None = None
        self._waiting: list[bytes] = []
        if self._exchange is not None:
            self._exchange.on_room = self._has_room

    @property
    def blocked(self) -> bool:
        """Whether the client is slower than its engine at the moment."""
        return self._drain is not None or (self._exchange is not None and self._exchange.blocked)

    @property
    def on_pump(self) -> tuple[Transport, bool] | None:
        """The client's connection, if it is the pump's, and whether its body is sent in chunks."""
        return self._exchange.on_pump if self._exchange is not None else None

    def attach(self, feed: Throttle) -> None:
        """From now on ``feed`` is what must pause while the client is slow."""
        self._feed = feed
        if self.blocked:
            feed.pause()

    def detach(self) -> None:
        """Whatever fed it serves somebody else from now on."""
        self._feed = None

    def push(self, data: bytes) -> None:
        if self._exchange is not None:
            self._exchange.write(data)
            if self._feed is not None and self._exchange.blocked:
                self._feed.pause()
        else:
            self._step(data)

    def _has_room(self) -> None:
        if self._feed is not None:
            self._feed.resume()

    def _step(self, data: bytes) -> None:
        if self._drain is not None:
            self._waiting.append(data)
            return
        step = self._send(_body(data)).__await__()
        try:
            waits_for = next(step)
        except (StopIteration, OSError):  # sent, or the client is gone: its presence tells those who work for it
            return
        if self._feed is not None:
            self._feed.pause()
        self._drain = asyncio.get_running_loop().create_task(self._finish(step, waits_for))

    async def finish(self, last: bytes = b"") -> None:
        """End the body, after what still waits for the client's socket."""
        if self._exchange is not None:
            await self._exchange.room()
        elif self._drain is not None:
            await self._drain
        await self._send({"type": "http.response.body", "body": last, "more_body": False})

    def abandon(self) -> None:
        """The client is gone: drop what waits."""
        drain, self._drain = self._drain, None
        self._feed = None
        self._waiting.clear()
        if drain is not None:
            drain.cancel()

    async def _finish(self, step: Generator[Any, None, None], waits_for: object) -> None:
        try:
            await _Rest(step, waits_for)
            while self._waiting:
                data, self._waiting = b"".join(self._waiting), []
                await self._send(_body(data))
        except OSError:  # as in push
            self._waiting.clear()
        finally:
            self._drain = None
            if self._feed is not None:
                self._feed.resume()


class _Rest:
    """Awaits what an already started awaitable waits for, then the rest of it."""

    def __init__(self, step: Generator[Any, None, None], waits_for: object) -> None:
        self._step = step
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, None, None]:
        yield self._waits_for
        yield from self._step


def _body(data: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": True}


class Relay:
    """The sink of a decode leg that streams.

    ``opened`` is done at the first whole event, or at the end of an answer that has none or is not a 200; ``closed``
    when the answer is complete, or with the error that ended it; ``over`` says that the connection has nothing more to
    say. ``lines`` are the progress lines of every event so far, ``opening`` the events that went to the client first,
    ``last_activity`` is the loop's time of the last read. ``may_be_moved``: the client's connection is on the pump,
    which may take the rest of the stream over (:mod:`sunfleet_router.engines.relaying`) and gives back what it saw.
    """

    __slots__ = (
        "_active_at", "_begun", "_client", "_early", "_elsewhere", "_further", "_last", "_loop", "_seeds", "closed",
        "lines", "may_be_moved",
        "opened", "opening", "over", "status",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, *, may_be_moved: bool = False) -> None:
        self._loop = loop
        self.may_be_moved = may_be_moved
        self._client: ClientStream | None = None
        self._elsewhere: Callable[[], float] | None = None  # the last activity, while the stream is moved
        self._early: list[bytes] = []
        self._begun = b""
        self._last = b""
        self._seeds = 0
        self._further: asyncio.Future[None] | None = None
        self.lines = bytearray()
        self.opening = b""
        self.over = False
        self.status = 0
        self.opened: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self._active_at = loop.time()

    @property
    def early(self) -> bytes:
        """What came before ``flow_to``; the whole body of an answer that is no stream."""
        return b"".join(self._early)

    @property
    def begun(self) -> bytes:
        """Of an event that is not whole yet."""
        return self._begun

    @property
    def last_event(self) -> bytes:
        return sse.last_event(self._last)

    @property
    def last_activity(self) -> float:
        return max(self._active_at, self._elsewhere()) if self._elsewhere is not None else self._active_at

    def slow_client(self) -> None:
        """That nothing comes is not the engine's doing at the moment."""
        self._active_at = self._loop.time()

    def flow_to(self, client: ClientStream) -> None:
        """From now on every event goes straight to the client; first what came early."""
        self._client = client
        self.opening, self._early = self.early, []
        if self.opening:
            client.push(self.opening)

    def further(self, seeds: int) -> asyncio.Future[None]:
        """Done once the pod has told more than the ``seeds`` tokens that it was handed, or the stream has closed."""
        further: asyncio.Future[None] = self._loop.create_future()
        self._seeds, self._further = seeds, further
        if self.closed.done() or not self.awaited:
            self.go_further()
        return further

    @property
    def awaited(self) -> int:
        """How many tokens must still be told until the pod has gone further; 0 when nobody waits for it."""
        return self._seeds + 1 - sse.told_tokens(self.lines, self._seeds + 1) if self._further is not None else 0

    def go_further(self) -> None:
        """It has."""
        if self._further is not None and not self._further.done():
            self._further.set_result(None)
        self._further = None

    # told by a connection that moves the stream without us

    def moved(self, activity: Callable[[], float]) -> None:
        """It does from now on."""
        self._elsewhere = activity

    def taken_back(self, lines: bytes, last: bytes, activity: float) -> None:
        """It does no more; what went to the client since."""
        self._elsewhere = None
        self._begun = b""
        self._active_at = max(self._active_at, activity)
        self.lines += lines
        self._last = last or self._last

    def ended_by_engine(self, event: bytes) -> None:
        """It came upon the engine's error event."""
        self._close(EngineEndedError(event))

    # connection.Sink

    def on_head(self, status: int) -> None:
        self.status = status

    def on_data(self, data: bytes) -> None:
        self._active_at = self._loop.time()
        if self.status != 200:
            self._early.append(data)
            return
        events, self._begun = sse.split(self._begun + data if self._begun else data)
        if not events:
            if len(self._begun) > _MAX_EVENT:
                self._close(BadFramingError("an event is larger than any event may be"))
            return
        if not self.closed.done():
            self._pass_on(sse.take_progress(events, self.lines))
            if self._further is not None and not self.awaited:
                self.go_further()

    def on_whole(self, status: int, body: bytes) -> None:
        self.on_head(status)
        if body:
            self.on_data(body)
        self.on_end()

    def on_end(self) -> None:
        self._is_over()
        complete = self.status != 200 or self.last_event == sse.DONE
        self._close(None if complete else ConnectionCutError("the stream ended without its last event"))

    def on_lost(self, error: UpstreamError) -> None:
        self._is_over()
        self._close(error)

    def _is_over(self) -> None:
        self.over = True
        if self._client is not None:
            self._client.detach()

    def _pass_on(self, events: bytes) -> None:
        error_at = sse.before_error(events)
        good = events if error_at < 0 else events[:error_at]
        if good and not good.isspace():
            self._last = good
            if self._client is not None:
                self._client.push(good)
            else:
                self._early.append(good)
                self._open()
        if error_at >= 0:
            self._close(EngineEndedError(events[error_at:]))

    def _open(self) -> None:
        if not self.opened.done():
            self.opened.set_result(None)

    def _close(self, error: UpstreamError | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None) if error is None else self.closed.set_exception(error)
            self.go_further()
            self.closed.exception()  # looked at: a request that was cancelled meanwhile must not leave a warning
        self._open()
