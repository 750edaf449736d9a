"""A prompt's token ids, kept as the JSON that an engine wrote: they go from one engine to the other, and are only
counted and compared on the way. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import orjson

try:
    from sunfleet_router._pump import count_byte
except ImportError:  # not built: the same, fifteen times slower

    def count_byte(data: bytes, byte: int, /) -> int:
        return data.count(byte)


# Inside a JSON string its quotes would be escaped, so this is a key wherever it stands.
_KEY: Final = re.compile(rb'"prompt_token_ids":\s*(\[)')
_COMMA: Final = ord(",")
_CUT: Final = "\x00prompt_token_ids"  # stands for them in what is parsed
_CUT_JSON: Final = orjson.dumps(_CUT)


class TokenIds:
    """A list of ids; ``json`` is its text for ``orjson.dumps``, ``count`` its length."""

    __slots__ = ("_text", "count", "json")

    def __init__(self, text: bytes = b"[]") -> None:
        self._text = text
        self.json = orjson.Fragment(text)
        commas = count_byte(text, _COMMA)
        self.count = commas + 1 if commas or text.strip(b"[] \t\r\n") else 0

    @classmethod
    def of(cls, ids: Iterable[int]) -> TokenIds:
        return cls(orjson.dumps(list(ids)))

    def __len__(self) -> int:
        return self.count

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TokenIds):
            return NotImplemented
        return self._text == other._text or orjson.loads(self._text) == orjson.loads(other._text)

    __hash__ = None  # type: ignore[assignment]


def take(raw: bytes) -> tuple[object, TokenIds]:
    """(the JSON value of ``raw``, the first list of prompt token ids in it).

    In the value a :class:`orjson.Fragment` stands in their place. Raises :class:`ValueError` for what is no JSON.
    """
    found = _KEY.search(raw)
    end = raw.find(b"]", found.end()) if found else -1
    if not found or end < 0:
        return orjson.loads(raw), TokenIds()
    begin = found.start(1)
    ids = TokenIds(raw[begin : end + 1])
    value = orjson.loads(raw[:begin] + _CUT_JSON + raw[end + 1 :])
    _put_back(value, ids)
    return value, ids


def _put_back(value: object, ids: TokenIds) -> None:
    """Where engines write them: beside the choices of a chat, inside those of a completion."""
    choices = value.get("choices") if isinstance(value, dict) else None
    for place in (value, *(choices if isinstance(choices, list) else ())):
        if isinstance(place, dict) and place.get("prompt_token_ids") == _CUT:
            place["prompt_token_ids"] = ids.json
