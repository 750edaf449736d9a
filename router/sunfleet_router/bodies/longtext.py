"""Long prompts, kept as the JSON that the client wrote: they go to an engine, and nothing here reads them. Pure.

A prompt of 32 KB would be made a string, checked, escaped and written anew, of which the engine sees no difference. The
native module finds such texts and checks them; without it every text is read as any other.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

import orjson

try:
    from sunfleet_router._pump import outline
except ImportError:  # not built

    def outline(data: bytes, least: int, mark: bytes, /) -> tuple[bytes, list[tuple[int, int, int]]] | None:
        """Finds none."""


LONG: Final = 8192  # bytes of a text from which on it is left alone
# Stands for such a text in what is parsed, with its number. No client can guess it.
_MARK: Final = f"\x00{secrets.token_hex(16)}:"
_MARK_JSON: Final = orjson.dumps(_MARK)[:-1]


class LongText:
    """``size``: bytes of the text itself, in UTF-8."""

    __slots__ = ("_json", "size")

    def __init__(self, json: bytes, size: int) -> None:
        self._json = json
        self.size = size

    @property
    def json(self) -> orjson.Fragment:
        """For ``orjson.dumps``."""
        return orjson.Fragment(self._json)

    def beginning(self, most: int) -> str:
        """About so many characters of it; the same of every text that begins with the same JSON."""
        return self._json[1 : most + 1].decode(errors="replace")


def loads(raw: bytes) -> Any:
    """As ``orjson.loads``; long texts of prompts and messages are :class:`LongText`."""
    found = outline(raw, LONG, _MARK_JSON) if len(raw) >= LONG else None
    if found is None:
        return orjson.loads(raw)
    short, places = found
    try:
        value = orjson.loads(short)
    except orjson.JSONDecodeError:
        return orjson.loads(raw)  # says where
    texts = [LongText(raw[start:end], size) for start, end, size in places]
    # One that stands anywhere else may be looked at, and one whose key comes twice is not there.
    return value if isinstance(value, dict) and _put_back(value, texts) == len(texts) else orjson.loads(raw)


def dumps(value: Any) -> bytes:
    """As ``orjson.dumps``, with long texts as they came."""
    return orjson.dumps(value, default=_json)


def _json(value: object) -> orjson.Fragment:
    if isinstance(value, LongText):
        return value.json
    raise TypeError(f"{type(value).__name__} is not JSON")


def _put_back(body: dict[str, Any], texts: list[LongText]) -> int:
    """How many were."""
    count = _put_into(body, "prompt", texts)
    messages = body.get("messages")
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, dict):
            count += _put_into(message, "content", texts)
    return count


def _put_into(holder: dict[str, Any], name: str, texts: list[LongText]) -> int:
    """A text, several texts, or a message's parts that hold one each."""
    value = holder.get(name)
    if isinstance(value, str):
        text = _text(value, texts)
        if text is None:
            return 0
        holder[name] = text
        return 1
    if not isinstance(value, list) or not value or isinstance(value[0], int):  # token ids are many
        return 0
    count = 0
    for at, one in enumerate(value):
        if isinstance(one, dict):
            count += _put_into(one, "text", texts)
        elif isinstance(one, str) and (text := _text(one, texts)) is not None:
            value[at] = text
            count += 1
    return count


def _text(value: str, texts: list[LongText]) -> LongText | None:
    return texts[int(value.removeprefix(_MARK))] if value.startswith(_MARK) else None
