"""Server-sent events as bytes: where events end, how a stream of an OpenAI engine ends, and which tokens it told. Pure.

Lines end in LF, as engines write them, or in CRLF, as a gateway in between may. Every function that runs for each read
only searches: JSON writes no raw line feed and escapes its quotes, so none of what is searched for can be a client's
text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sunfleet_api import wire

DONE: Final = b"data: [DONE]"

_BOUNDARY: Final = b"\n\n"
_CRLF_BOUNDARY: Final = b"\r\n\r\n"
_ERROR: Final = b'data: {"error"'
_NEXT_PROGRESS: Final = b"\n" + wire.PROGRESS_PREFIX


def split(data: bytes) -> tuple[bytes, bytes]:
    """(whole events, begun event). A client must never get half an event: what follows may be an error event."""
    if data.endswith(_BOUNDARY):
        return data, b""
    end = _last_boundary(data, len(data))
    return data[:end], data[end:]


def take_progress(events: bytes, lines: bytearray) -> bytes:
    """Whole events without their progress lines, which are appended to ``lines``.

    One buffer for all of them: thousands of streams keep thousands of these lines each.
    """
    if events.startswith(wire.PROGRESS_PREFIX):
        end = events.index(b"\n") + 1
        rest = events[end:]
        if _NEXT_PROGRESS not in rest and not rest.startswith(wire.PROGRESS_PREFIX):  # one event: the usual read
            lines += events[:end]
            return rest
    elif _NEXT_PROGRESS not in events:
        return events
    first, *parts = (b"\n" + events).split(_NEXT_PROGRESS)
    kept = [first]
    for part in parts:
        ids, feed, rest = part.partition(b"\n")
        lines += wire.PROGRESS_PREFIX + ids + b"\n"
        if feed:  # else the next progress line follows at once
            kept.append(rest)
    return b"\n".join(kept)[1:]


def told_tokens(lines: bytes | bytearray, most: int) -> int:
    """How many tokens some progress lines tell; counts to ``most`` and no further. A line that cannot be read counts as
    many: what it tells is unknown, but something is.
    """
    count = 0
    for line in lines.splitlines():
        try:
            count += len(wire.Progress.from_line(bytes(line)).token_ids)
        except ValueError:
            return most
        if count >= most:
            break
    return count


def last_event(events: bytes) -> bytes:
    """The last of some whole events, without its end."""
    body = events.rstrip(b"\r\n")
    return body[_last_boundary(body, len(body)) :]


def before_error(events: bytes) -> int:
    """Where an engine's error event begins in some whole events; -1 when there is none."""
    return events.find(_ERROR)


def payload(events: bytes) -> bytes:
    """The data of the first of some single-line events."""
    return events.partition(b"\n")[0].strip().removeprefix(b"data: ")


def data(events: bytes) -> Iterator[bytes]:
    """The data of each of some whole events that are one line long, as engines write them."""
    for line in events.splitlines():
        if line.startswith(b"data:"):
            yield line[5:].strip()


def _last_boundary(data: bytes, end: int) -> int:
    """Where the last whole event before ``end`` stops; 0 when there is none."""
    plain, crlf = data.rfind(_BOUNDARY, 0, end), data.rfind(_CRLF_BOUNDARY, 0, end)
    return max(plain + 2 if plain >= 0 else 0, crlf + 4 if crlf >= 0 else 0)
