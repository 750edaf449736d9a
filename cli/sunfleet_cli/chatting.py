"""A conversation with a task, and what a router's stream of it says. Pure."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

PATH: Final = "/v1/chat/completions"
_DATA: Final = "data:"
_DONE: Final = "[DONE]"


class ChatError(Exception):
    """No whole answer; the message is the router's, or says how the stream ended."""


@dataclass
class Conversation:
    """What has been said. ``options`` go along with every request, such as ``temperature``."""

    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    messages: list[dict[str, str]] = field(default_factory=list)

    def ask(self, text: str) -> bytes:
        """The request for an answer to ``text``; nothing is remembered before there is one."""
        asked = [*self.messages, {"role": "user", "content": text}]
        wanted = {"model": self.model, "messages": asked, "stream": True, "stream_options": {"include_usage": True}}
        return json.dumps({**wanted, **self.options}).encode()

    def answered(self, text: str, reply: Reply) -> None:
        self.messages += [{"role": "user", "content": text}, {"role": "assistant", "content": reply.text}]


@dataclass
class Reply:
    """What came of one request, filled while its stream is read."""

    text: str = ""
    finish_reason: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)


def read(chunks: Iterable[bytes], reply: Reply) -> Iterator[str]:
    """Pieces of text as they come. :class:`ChatError` at an error event, and at an end without ``[DONE]``: a stream
    that only stops is no whole answer."""
    for data in _events(chunks):
        if data == _DONE:
            return
        event = _decoded(data)
        if event.get("error"):
            raise ChatError(_said(event))
        reply.usage = event.get("usage") or reply.usage
        for choice in event.get("choices") or ():
            reply.finish_reason = choice.get("finish_reason") or reply.finish_reason
            if piece := (choice.get("delta") or {}).get("content"):
                reply.text += piece
                yield piece
    raise ChatError("the stream ended before the answer did")


def refusal(status: int, body: bytes) -> ChatError:
    """Why there is no stream at all."""
    try:
        return ChatError(f"{status}: {_said(json.loads(body))}")
    except (ValueError, AttributeError):
        return ChatError(f"{status}: {body[:300].decode(errors='replace').strip()}")


def _said(document: Mapping[str, Any]) -> str:
    """The message of an error of the router's, or of the API server's (a Status)."""
    error = document.get("error")
    if not isinstance(error, Mapping):
        return str(error or document.get("message") or document)
    code = error.get("code") or error.get("type")
    return f"{error.get('message', '')} ({code})" if code else str(error.get("message", ""))


def _decoded(data: str) -> Mapping[str, Any]:
    try:
        event = json.loads(data)
    except ValueError:
        event = None
    if not isinstance(event, Mapping):
        raise ChatError(f"the stream holds something else than events: {data[:100]!r}")
    return event


def _events(chunks: Iterable[bytes]) -> Iterator[str]:
    """The data of each server-sent event; comments and other fields are left out."""
    decoder, rest = codecs.getincrementaldecoder("utf-8")("replace"), ""
    for chunk in chunks:
        *lines, rest = (rest + decoder.decode(chunk)).split("\n")
        for line in lines:
            if line.startswith(_DATA):
                yield line.removeprefix(_DATA).strip()
