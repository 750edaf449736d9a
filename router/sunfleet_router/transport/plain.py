"""Plain messages, taken apart at once by the native module (``router/native/message.c``): a request of a client, or an
engine's answer, that one read holds whole and that says nothing odd. ``None`` leaves it to the parser, which then
judges all of it.
"""

from __future__ import annotations

try:
    from sunfleet_router._pump import answer, request
except ImportError:  # not built: everything is the parser's

    def request(data: bytes, /) -> tuple[str, bytes, list[tuple[bytes, bytes]], bytes] | None:
        """(method, target, headers with their names in lower case, body)."""

    def answer(data: bytes, /) -> tuple[int, bytes] | None:
        """(status, body) of one after which the connection may be used again."""


__all__ = ["answer", "request"]
