"""How an answer goes onto the wire, well or badly framed, and how a connection dies."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import NoReturn

from starlette.types import Send

from sunfleet_fakes.engine import answers
from sunfleet_fakes.engine.behaviour import Behaviour

_APART = 0.002  # seconds between writes that must not share a TCP segment
_LAST_WORDS = 0.05  # seconds from the last write to a death


class DiedError(Exception):
    """The connection or body has ended the way a fault asked for; nothing more may be sent."""


class Writer:
    """Writes one answer. ``reset`` closes the connection with a RST."""

    def __init__(self, send: Send, behaviour: Behaviour, reset: Callable[[], None]) -> None:
        self._send = send
        self._behaviour = behaviour
        self._reset = reset
        self._held = b""
        self._events = 0
        self.streaming = False
        self.status = 0

    async def json(self, status: int, body: object) -> None:
        """A whole answer; spoilt when ``garbage_json`` asks for it."""
        raw = answers.dumps(body)
        if self._behaviour.garbage_json and status == 200:
            raw = raw[: len(raw) // 2] + b"<html>"
        await self._start(status, b"application/json", (b"content-length", str(len(raw)).encode()))
        await self._send({"type": "http.response.body", "body": raw})

    async def event(self, raw: bytes, progress: bytes = b"") -> None:
        """One server-sent event, after a line that says what it tells; the first one opens the stream."""
        if not self.streaming:
            await self._start(200, b"text/event-stream; charset=utf-8")
            self.streaming = True
        framing = self._behaviour.framing
        if framing == "no_done" and raw == answers.DONE:
            return
        self._events += 1
        if framing == "garbage" and self._events == 3:
            raw = b"data: {not json\n\n"
        raw = progress + raw
        if framing == "crlf":
            raw = raw.replace(b"\n", b"\r\n")
        if framing == "split":
            await self._write_apart(raw)
        elif framing == "merged" and self._events % 3:
            self._held += raw
        else:
            await self._write(raw)

    async def end(self) -> None:
        """End of a stream's body."""
        await self._write(b"")
        await self._send({"type": "http.response.body", "body": b""})

    async def die(self, partial: bytes = b"") -> NoReturn:
        """End as configured; ``partial`` is what of a whole answer gets out before. Never returns."""
        if self.streaming:
            await asyncio.sleep(_LAST_WORDS)  # what has been written shall arrive: a RST may overtake it
        if self._behaviour.die == "exit":
            os._exit(128 + signal.SIGKILL)  # a signal to oneself does nothing to process 1 of a container
        if self._behaviour.die == "reset":
            self._reset()
            raise DiedError
        if not self.streaming:
            await self._start(200, b"application/json")
            await self._send({"type": "http.response.body", "body": partial, "more_body": True})
        await self.end()
        raise DiedError

    async def _start(self, status: int, content_type: bytes, *headers: tuple[bytes, bytes]) -> None:
        self.status = status
        await self._send({
            "type": "http.response.start", "status": status, "headers": [(b"content-type", content_type), *headers],
        })  # fmt: skip

    async def _write(self, raw: bytes) -> None:
        held, self._held = self._held + raw, b""
        if held:
            await self._send({"type": "http.response.body", "body": held, "more_body": True})

    async def _write_apart(self, raw: bytes) -> None:
        step = max(1, len(raw) // 3)
        for at in range(0, len(raw), step):
            await self._write(raw[at : at + step])
            await asyncio.sleep(_APART)
