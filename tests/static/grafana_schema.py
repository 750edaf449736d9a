"""Whether a dashboard is one by Grafana's schema, of which Grafana generates its Foundation SDK.

The SDK reads what it knows and drops the rest, without looking at types. So a dashboard is read and written again, and
what is not there any more is unknown to Grafana; and each value that was read is held against its annotation.
"""

from __future__ import annotations

import enum
import json
import types
import typing
from collections.abc import Iterator
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

register_default_plugins()


def faults(board: dict[str, Any]) -> list[str]:
    """What is wrong with a dashboard's JSON, in words; nothing when it is as Grafana has it."""
    read = Dashboard.from_json(board)
    written = json.loads(json.dumps(read, cls=JSONEncoder))
    return [*_lost(board, written, "dashboard"), *_members(read, "dashboard")]


def _lost(given: object, kept: object, where: str) -> Iterator[str]:
    if isinstance(given, dict) and isinstance(kept, dict):
        for name, value in given.items():
            if name in kept:
                yield from _lost(value, kept[name], f"{where}.{name}")
            else:
                yield f"{where}.{name}: Grafana knows no such field"
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for number, (one, other) in enumerate(zip(given, kept, strict=True)):
            yield from _lost(one, other, f"{where}[{number}]")
    elif given != kept:
        yield f"{where}: {given!r} is read as {kept!r}"


def _members(read: object, where: str) -> Iterator[str]:
    for name, hint in typing.get_type_hints(type(read)).items():
        value = getattr(read, name, None)
        if value is not None:
            yield from _wrong(value, hint, f"{where}.{name}")


def _wrong(value: object, hint: Any, where: str) -> Iterator[str]:
    """What of ``value`` is not as its annotation says. Panels' options and queries are annotated as anything."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hasattr(type(value), "from_json"):
        yield from _members(value, where)
    elif origin in {typing.Union, types.UnionType}:
        yield from min((list(_wrong(value, one, where)) for one in inner), key=len)
    elif origin is list and isinstance(value, list):
        for number, one in enumerate(value):
            yield from _wrong(one, inner[0], f"{where}[{number}]")
    elif origin is dict and isinstance(value, dict):
        for name, one in value.items():
            yield from _wrong(one, inner[1], f"{where}.{name}")
    elif not _fits(value, origin or hint, inner):
        yield f"{where}: {value!r} is no {getattr(hint, '__name__', hint)}"


def _fits(value: object, kind: Any, choices: tuple[Any, ...]) -> bool:
    if kind in {Any, object}:
        return True
    if kind is typing.Literal:
        return value in choices
    if issubclass(kind, enum.Enum):
        return value in {member.value for member in kind}
    if kind in {int, float}:
        return isinstance(value, int if kind is int else (int, float)) and not isinstance(value, bool)
    return isinstance(value, kind)
