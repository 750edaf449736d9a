"""Other APIs in front of the same two legs: their requests become chats, and chats' answers become theirs.

``Dialect`` is what an API must say; ``translating`` is the one place where bytes meet it, between a reply and the
server. So everything below, resumes included, sees chats only, and requests that are chats pay nothing for it. Must
not call an engine, keep a conversation, or know which pods serve it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

Json = dict[str, Any]


class Answering(Protocol):
    """The answer to one request, as it is made. Chunks and answers are those of a chat."""

    def whole(self, answer: Json) -> Json:
        """The body of an answer that is not streamed."""

    def chunk(self, chunk: Json) -> bytes:
        """The events that one chunk of a stream becomes; empty for none."""

    def end(self) -> bytes:
        """The events that end a whole stream."""

    def broken(self, error: Mapping[str, Any]) -> bytes:
        """The events that end a stream which broke off; ``error`` is OpenAI's object."""


class Dialect(Protocol):
    """One API. All of it is pure."""

    def to_chat(self, request: Json) -> Json:
        """The body of the chat that a request stands for; raises :class:`InvalidRequestError`."""

    def answering(self, request: Json, chat: Json, request_id: str) -> Answering:
        """For the answer to ``request``, which was served as ``chat``."""

    def refused(self, status: int, error: Mapping[str, Any]) -> Json:
        """The body of an answer that is an error; ``error`` is OpenAI's object."""
