"""Server-sent events as bytes: where events end, and how a stream of an OpenAI engine ends. Pure.

Lines end in LF, as engines write them, or in CRLF, as a gateway in between may.
"""

from __future__ import annotations

from typing import Final

_BOUNDARY: Final = b"\n\n"
_CRLF_BOUNDARY: Final = b"\r\n\r\n"
_DONE: Final = b"data: [DONE]"
_ERROR: Final = b'data: {"error"'


def split(data: bytes) -> tuple[bytes, bytes]:
    """(whole events, begun event). A client must never get half an event: what follows may be an error event."""
    if data.endswith(_BOUNDARY):
        return data, b""
    end = _last_boundary(data, len(data))
    return data[:end], data[end:]


def last_event(events: bytes) -> bytes:
    """The last of some whole events, without its end."""
    body = events.rstrip(b"\r\n")
    return body[_last_boundary(body, len(body)) :]


def ends_properly(events: bytes) -> bool:
    """Whether the last event says how the stream ended: ``[DONE]`` or the engine's own error."""
    last = last_event(events)
    return last == _DONE or is_error(last)


def is_error(events: bytes) -> bool:
    """Whether the first of some events is an engine's error object."""
    return events.startswith(_ERROR)


def payload(events: bytes) -> bytes:
    """The data of the first of some single-line events."""
    return events.partition(b"\n")[0].strip().removeprefix(b"data: ")


def _last_boundary(data: bytes, end: int) -> int:
    """Where the last whole event before ``end`` stops; 0 when there is none."""
    plain, crlf = data.rfind(_BOUNDARY, 0, end), data.rfind(_CRLF_BOUNDARY, 0, end)
    return max(plain + 2 if plain >= 0 else 0, crlf + 4 if crlf >= 0 else 0)
