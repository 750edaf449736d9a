"""Stands where the server's ``send`` would: takes a chat's answer, sends that of another API."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import orjson

from sunfleet_router.bodies import clientbody, sse
from sunfleet_router.bodies.clientbody import Ask
from sunfleet_router.dialects import Answering, Dialect, Json
from sunfleet_router.dialects.messages import Messages
from sunfleet_router.engines.relay import Send
from sunfleet_router.errors import UnsayableAnswerError

_LENGTH = b"content-length"
MESSAGES = "/v1/messages"


def worded(send: Send, path: str) -> Send:
    """The ``send`` that an error of the router itself goes to: below some paths clients expect another form."""
    return Translating(send, Messages()) if path.startswith(MESSAGES) else send


class Translating:
    """One request's. Errors are translated even before :meth:`read`, answers only after it."""

    def __init__(self, send: Send, dialect: Dialect) -> None:
        self._send = send
        self._dialect = dialect
        self._answering: Answering | None = None
        self._start: MutableMapping[str, Any] = {}
        self._streamed = False
        self._body = b""  # of an answer that is not streamed

    def read(self, raw: bytes, request_id: str) -> Ask:
        """The chat that a request body stands for; raises :class:`InvalidRequestError`."""
        request = clientbody.load(raw)
        clientbody.refuse_steering(request)
        chat = self._dialect.to_chat(request)
        self._answering = self._dialect.answering(request, chat, request_id)
        return clientbody.check("chat", chat, len(raw))

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            self._streamed = any(value.startswith(b"text/event-stream") for _, value in message["headers"])
            if self._streamed:
                await self._send(message)
        elif self._streamed:
            await self._pass_on(message)
        else:
            self._body += message["body"]
            if not message.get("more_body", False):
                await self._whole()

    async def _pass_on(self, message: MutableMapping[str, Any]) -> None:
        """The router writes whole events only."""
        told = b"".join(map(self._told, sse.data(message["body"])))
        if told or not message["more_body"]:
            await self._send({**message, "body": told})

    def _told(self, data: bytes) -> bytes:
        answering = self._answering
        if answering is None:
            return b""
        if data == b"[DONE]":
            return answering.end()
        try:
            chunk = orjson.loads(data)
        except orjson.JSONDecodeError:
            return b""
        return answering.broken(chunk["error"]) if "error" in chunk else answering.chunk(chunk)

    def _translated(self, status: int, answer: Json) -> tuple[int, Json]:
        """Status and body of an answer that is not streamed."""
        if status != 200:
            return status, self._dialect.refused(status, answer["error"])
        if self._answering is None:
            return status, answer
        try:
            return status, self._answering.whole(answer)
        except UnsayableAnswerError as error:
            return error.status, self._dialect.refused(error.status, error.to_object()["error"])

    async def _whole(self) -> None:
        status, translated = self._translated(self._start["status"], orjson.loads(self._body))
        body = orjson.dumps(translated)
        headers = [header for header in self._start["headers"] if header[0] != _LENGTH]
        await self._send({**self._start, "status": status, "headers": [*headers, (_LENGTH, str(len(body)).encode())]})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})
