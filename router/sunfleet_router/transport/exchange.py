"""One request of a client and its answer, on our own server (:mod:`sunfleet_router.transport.front`).

To an ASGI application an :class:`Exchange` is ``send`` and its :class:`Inbox` is ``receive``. Those who know what they
hold use it directly: writing costs no coroutine, and a client's leaving is told by a callback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, MutableMapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from sunfleet_router._pump import Transport

Header = tuple[bytes, bytes]

_STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}  # fmt: skip
_CHUNKS: Final = tuple(b"%x\r\n" % size for size in range(1024))  # an event's usual sizes: formatting costs more
_NO_BODY: Final = frozenset({204, 304})


class Wire(Protocol):
    """The connection that an exchange is on."""

    blocked: bool  # the client's socket is full
    pump: Transport | None  # if it is the native pump's

    def put(self, data: bytes) -> None:
        """Write bytes; none are lost before the connection is."""

    def finished(self, *, keep: bool) -> None:
        """The answer is written; ``keep``: another may follow on this connection."""

    def abort(self) -> None:
        """Close at once: what was begun stays incomplete, and the client sees it."""


class Inbox:
    """ASGI's ``receive``: the request's body, as much as there is each time, then nothing until the client leaves.

    ``whole``: whether all of the body has come. ``on_leave`` is called once, if the client leaves before its answer is
    complete; ``on_taken`` when the application has taken what had come; ``closed``: the client has left.
    """

    __slots__ = ("_given", "_parts", "_taken", "_waits", "closed", "on_leave", "on_taken", "size", "whole", "work")

    def __init__(self, body: bytes | None = None) -> None:
        """``body``: all of it, if it has come already."""
        self._parts: list[bytes] = [] if body is None else [body]
        self._given = False  # all of it
        self._taken = False  # some of it
        self._waits: asyncio.Future[None] | None = None
        self.closed = False
        self.size = 0 if body is None else len(body)  # bytes that wait for the application
        self.whole = body is not None
        self.on_leave: Callable[[], None] | None = None
        self.on_taken: Callable[[], None] | None = None
        self.work: asyncio.Task[None] | None = None  # which answers it

    async def __call__(self) -> dict[str, Any]:
        while not (self.closed or self._parts or (self.whole and not self._given)):
            self._waits = self._waits or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._waits)
        if self.closed:
            return {"type": "http.disconnect"}
        body = self._take()
        if not self.whole and self.on_taken is not None:
            self.on_taken()
        return {"type": "http.request", "body": body, "more_body": not self.whole}

    def take_whole(self) -> bytes | None:
        """The whole body without waiting; ``None`` unless all of it is there, and nothing has been taken."""
        if not self.whole or self._given or self._taken or self.closed:
            return None
        parts, self._parts = self._parts, []
        self._given, self._taken, self.size = True, True, 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _take(self) -> bytes:
        self._given, self._taken = self.whole, True
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self.size = [], 0
        return body

    # told by the connection

    def feed(self, part: bytes) -> None:
        """A part of the body has come."""
        self._parts.append(part)
        self.size += len(part)
        self._wake()

    def finish(self) -> None:
        """The body is whole."""
        self.whole = True
        self._wake()

    def close(self) -> None:
        """The client has left."""
        self.closed = True
        self._wake()
        if self.on_leave is not None:
            self.on_leave()

    def _wake(self) -> None:
        waits, self._waits = self._waits, None
        if waits is not None and not waits.done():
            waits.set_result(None)


class Exchange:
    """``persistent``: the client keeps its connection. ``old``: it speaks HTTP/1.0, so no chunks; ``head``: it wants no
    body.
    """

    __slots__ = ("_chunked", "_head", "_keep", "_no_body", "_old", "_room", "_wire", "complete", "inbox", "on_room",
                 "started")  # fmt: skip

    def __init__(
        self, wire: Wire, inbox: Inbox, *, persistent: bool = True, old: bool = False, head: bool = False
    ) -> None:
        self._wire = wire
        self._keep = persistent
        self._old = old
        self._no_body = head
        self._head = b""  # waits for the first bytes of the body
        self._chunked = False
        self._room: asyncio.Future[None] | None = None
        self.inbox = inbox
        self.started = self.complete = False
        self.on_room: Callable[[], None] | None = None  # called when the client's socket has room again

    @property
    def blocked(self) -> bool:
        """Whether the client reads more slowly than it is written to."""
        return self._wire.blocked and not self.inbox.closed

    @property
    def wire_on_pump(self) -> bool:
        return self._wire.pump is not None

    @property
    def on_pump(self) -> tuple[Transport, bool] | None:
        """The connection, if it is the pump's and the body is under way, and whether that is sent in chunks."""
        pump = self._wire.pump
        return (pump, self._chunked) if pump is not None and not self._head and not self._no_body else None

    def begin(self, status: int, headers: Iterable[Header]) -> None:
        """The answer's head, which goes out with the first bytes of its body."""
        self.started = True
        self._keep = self._keep and self.inbox.whole  # what is left of a request would be taken for the next one
        head = _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
        self._no_body = self._no_body or status in _NO_BODY
        sized = self._no_body
        for name, value in headers:
            if name == b"content-length":
                sized = True
            elif name == b"connection" and value == b"close":
                self._keep = False
                continue  # said below
            head += b"%b: %b\r\n" % (name, value)
        if not sized and self._old:
            self._keep = False
        elif not sized:
            self._chunked = True
            head += b"transfer-encoding: chunked\r\n"
        self._head = head + (b"\r\n" if self._keep else b"connection: close\r\n\r\n")

    def write(self, data: bytes) -> None:
        """A part of the body."""
        if self.inbox.closed or self._no_body or not data:
            return
        if self._chunked:
            size = len(data)
            begin = _CHUNKS[size] if size < len(_CHUNKS) else b"%x\r\n" % size
            data = b"".join((begin, data, b"\r\n"))
        if self._head:
            data, self._head = self._head + data, b""
        self._wire.put(data)

    def end(self, last: bytes = b"") -> None:
        """The rest of the body; the answer is complete."""
        if self.complete or self.inbox.closed:
            return
        self.complete = True
        if self._no_body:
            last = b""
        elif self._chunked:
            last = b"%x\r\n%b\r\n0\r\n\r\n" % (len(last), last) if last else b"0\r\n\r\n"
        if data := self._head + last:
            self._wire.put(data)
        self._head = b""
        self._wire.finished(keep=self._keep)

    def abandon(self) -> None:
        """The answer will not be completed: the client sees a connection that breaks off."""
        if not self.complete and not self.inbox.closed:
            self._wire.abort()

    async def room(self) -> None:
        """Until the client's socket takes more; returns too when the client has left."""
        while self.blocked:
            if self._room is None:
                self._room = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        """ASGI's ``send``; suspends while the client's socket is full."""
        if message["type"] == "http.response.start":
            self.begin(message["status"], message.get("headers", ()))
        elif message.get("more_body", False):
            self.write(message.get("body", b""))
            if self.blocked:
                await self.room()
        else:
            self.end(message.get("body", b""))

    # told by the connection

    def has_room(self) -> None:
        """The socket takes bytes again."""
        self._wake()
        if self.on_room is not None:
            self.on_room()

    def lost(self) -> None:
        """The client has closed the connection before its answer was complete."""
        self.inbox.close()
        self._wake()

    def _wake(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)
