"""A prompt's token ids, kept as the JSON that an engine wrote: they go from one engine to the other, and are only
counted and compared on the way. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import orjson

try:
    from sunfleet_router._pump import prompt_ids as find
except ImportError:  # not built: the same, several times slower

    def find(raw: bytes, /) -> tuple[int, int, int] | None:
        """Where the first list of prompt token ids begins and ends, and how many they are."""
        return find_slowly(raw)


__all__ = ["TokenIds", "find", "find_slowly", "take"]

# Inside a JSON string its quotes would be escaped, so this is a key wherever it stands.
_KEY: Final = re.compile(rb'"prompt_token_ids":\s*(\[)')
_CUT: Final = "\x00prompt_token_ids"  # stands for them in what is parsed
_CUT_JSON: Final = orjson.dumps(_CUT)


class TokenIds:
    """A list of ids; ``json`` is its text for ``orjson.dumps``, ``count`` its length."""

    __slots__ = ("_text", "count", "json")

    def __init__(self, text: bytes = b"[]", count: int | None = None) -> None:
        """``count``: where it is known."""
        self._text = text
        self.json = orjson.Fragment(text)
        self.count = _count(text) if count is None else count

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
    found = find(raw)
    if found is None:
        return orjson.loads(raw), TokenIds()
    begin, end, count = found
    ids = TokenIds(raw[begin:end], count)
    value = orjson.loads(raw[:begin] + _CUT_JSON + raw[end:])
    _put_back(value, ids)
    return value, ids


def find_slowly(raw: bytes) -> tuple[int, int, int] | None:
    """As the native module does."""
    found = _KEY.search(raw)
    end = raw.find(b"]", found.end()) + 1 if found else 0
    return (found.start(1), end, _count(raw[found.start(1) : end])) if found and end else None


def _count(text: bytes) -> int:
    commas = text.count(b",")
    return commas + 1 if commas or text.strip(b"[] \t\r\n") else 0


def _put_back(value: object, ids: TokenIds) -> None:
    """Where engines write them: beside the choices of a chat, inside those of a completion."""
    if type(value) is not dict:
        return
    choices = value.get("choices")
    for place in (value, *choices) if type(choices) is list else (value,):
        if type(place) is dict and "prompt_token_ids" in place and place["prompt_token_ids"] == _CUT:
            place["prompt_token_ids"] = ids.json
