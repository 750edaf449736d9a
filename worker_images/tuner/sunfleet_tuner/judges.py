"""When an answer counts as right: three judges, each strict about what a client would have to parse."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final

Judge = Callable[[str, str], bool]  # (given answer, right answer)

_NUMBER: Final = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def same_text(given: str, right: str) -> bool:
    """The very same words, apart from white space around them."""
    return given.strip() == right.strip()


def same_json(given: str, right: str) -> bool:
    """The same JSON value and nothing beside it: a tool call in another spelling is still the call."""
    ours, theirs = _parsed(given), _parsed(right)
    return bool(ours == theirs) and theirs is not _NOT_JSON


def last_number(given: str, right: str) -> bool:
    """The last number in each is the same: GSM8K's way, where reasoning comes before the answer."""
    ours, theirs = _last(given), _last(right)
    return ours is not None and ours == theirs


JUDGES: Final[dict[str, Judge]] = {"text": same_text, "json": same_json, "number": last_number}


_NOT_JSON: Final = object()


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return _NOT_JSON


def _last(text: str) -> Decimal | None:
    numbers = _NUMBER.findall(text)
    try:
        return Decimal(numbers[-1].replace(",", "")) if numbers else None
    except InvalidOperation:
        return None
