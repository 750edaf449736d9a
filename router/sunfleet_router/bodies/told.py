"""What a client has been told of one streamed answer: enough to go on elsewhere without a token lost or repeated. Pure.

An engine says in a comment line before each event which tokens that event tells (``sunfleet_api.wire``). The relay only
collects these lines; they are read here, when a stream has broken off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from sunfleet_api import wire
from sunfleet_router.bodies import sse
from sunfleet_router.bodies.handover import PrefillReply

_NEXT_LINE: Final = b"\n" + wire.PROGRESS_PREFIX
_PLAIN: Final = b"0123456789,\r\n" + wire.PROGRESS_PREFIX  # the bytes of lines with token ids alone


@dataclass(slots=True)
class Told:
    """``first`` is what the first prefill leg gave: its token is the answer's first, whatever a later one samples."""

    first: PrefillReply
    tokens: list[int] = field(default_factory=list)
    rows: dict[str, list[Any]] = field(default_factory=dict)  # log-probabilities, if asked for: one row for each token
    created: int | None = None  # of the stream's first chunk
    last: bytes = b""  # the last event
    exact: bool = True  # False: the client has got something of which we do not know which tokens it was

    @property
    def output(self) -> list[int]:
        """The tokens that the next decoder must count as output already."""
        return self.tokens or self.first.output

    @property
    def logprobs(self) -> Mapping[str, Any] | None:
        """The rows of :attr:`output`; ``None`` when the client wants none."""
        return self.rows or None if self.tokens else self.first.transfer.get(wire.KEY_OUTPUT_LOGPROBS)

    def add(self, opening: bytes, lines: bytes | bytearray, last: bytes) -> None:
        """Note what one decode leg told: its first events, its progress lines, its last event. All without effect when
        it told nothing."""
        if not last:
            return
        self.last = last
        if self.created is None:
            self.created = _created(opening)
        if not lines and not _is_opening(last):
            self.exact = False
        plain = _plain_ids(lines)
        if plain is not None:
            self.tokens += plain
            return
        try:
            for line in bytes(lines).splitlines():
                self._count(wire.Progress.from_line(line))
        except ValueError:
            self.exact = False

    def ended(self) -> bool:
        """Whether the last event says that the text is complete; what may be missing is counted or constant."""
        return self.last == sse.DONE or _finish_reason(self.last) is not None

    def _count(self, progress: wire.Progress) -> None:
        self.tokens.extend(progress.token_ids)
        for name, part in (progress.logprobs or {}).items():
            self.rows.setdefault(name, []).extend(part)


def _plain_ids(lines: bytes | bytearray) -> list[int] | None:
    """The tokens of progress lines that hold nothing else, as most do, at once: every stream has one for each token.

    ``None`` for lines that must be read one by one.
    """
    if lines.translate(None, _PLAIN):
        return None
    try:
        ids = orjson.loads(b"[%b]" % bytes(lines).strip().removeprefix(wire.PROGRESS_PREFIX).replace(_NEXT_LINE, b","))
    except ValueError:
        return None
    return ids if isinstance(ids, list) else None


def chunk_of(event: bytes) -> dict[str, Any]:
    """The JSON object of an event; empty when it holds none."""
    try:
        chunk = orjson.loads(sse.payload(event))
    except orjson.JSONDecodeError:
        return {}
    return chunk if isinstance(chunk, dict) else {}


def _created(events: bytes) -> int | None:
    created = chunk_of(events).get("created")
    return created if isinstance(created, int) else None


def _choice(event: bytes) -> dict[str, Any]:
    choices = chunk_of(event).get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}


def _finish_reason(event: bytes) -> object:
    """Of a usage event, which has no choices and comes after the text, the word for it."""
    chunk = chunk_of(event)
    return "usage" if chunk.get("choices") == [] and chunk.get("usage") else _choice(event).get("finish_reason")


def _is_opening(event: bytes) -> bool:
    """Whether this is a chat's first chunk, which names the role and tells no token."""
    delta = _choice(event).get("delta")
    return isinstance(delta, dict) and "role" in delta and not delta.get("content")
