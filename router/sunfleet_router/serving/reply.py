"""The answer to one client: whole or streamed, or an error in the form that is still possible."""

from __future__ import annotations

import asyncio
from typing import Final

from sunfleet_router.engines.relay import ClientStream, Send
from sunfleet_router.errors import RouterError
from sunfleet_router.transport.exchange import Exchange

Header = tuple[bytes, bytes]

_LAST_WORD_SECONDS: Final = 5.0  # for a client that does not read: after it nobody waits for its socket


class ClientReply:
    """Sends at most one answer. ``closing``: the process leaves, the client shall reconnect."""

    def __init__(self, send: Send, request_id: str, *, closing: bool = False) -> None:
        self._send = send
        self._headers: list[Header] = [(b"x-request-id", request_id.encode("latin-1"))]
        if closing:
            self._headers.append((b"connection", b"close"))
        self._stream: ClientStream | None = None
        self.started = False

    @property
    def on_pump(self) -> bool:
        """Whether a stream into it may be moved by the pump."""
        return isinstance(self._send, Exchange) and self._send.wire_on_pump

    def set_header(self, name: bytes, value: str) -> None:
        """Add a header, or replace it: a second attempt has other pods."""
        self._headers = [header for header in self._headers if header[0] != name]
        self._headers.append((name, value.encode("latin-1", "replace")))

    async def whole(self, status: int, body: bytes, content_type: bytes = b"application/json") -> None:
        """A complete answer."""
        headers = [(b"content-type", content_type), (b"content-length", b"%d" % len(body))]
        if isinstance(self._send, Exchange):  # without a coroutine for the head
            self.started = True
            self._send.begin(status, headers + self._headers)
            self._send.end(body)
            return
        await self._start(status, headers)
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def open_stream(self) -> ClientStream:
        """Send the head of an event stream; from here on errors are events."""
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),  # nginx would collect the tokens otherwise
        ]
        await self._start(200, headers)
        self._stream = ClientStream(self._send)
        return self._stream

    async def error(self, error: RouterError) -> None:
        """The error as an answer, or as the last event of a stream that has begun."""
        if self._stream is not None:
            try:
                async with asyncio.timeout(_LAST_WORD_SECONDS):
                    await self._stream.finish(error.to_event())
            except TimeoutError:  # the server closes the connection of an answer that was not completed
                self._stream.abandon()
        elif not self.started:
            for name, value in error.headers().items():
                self.set_header(name.encode(), value)
            await self.whole(error.status, error.to_json())

    def abandon(self) -> None:
        """The client is gone."""
        if self._stream is not None:
            self._stream.abandon()

    async def _start(self, status: int, headers: list[Header]) -> None:
        self.started = True
        if isinstance(self._send, Exchange):
            self._send.begin(status, (*headers, *self._headers))
            return
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, *self._headers]})
