"""Looking into what a chat's engine says: tolerant, for what it lacks is not there. Pure."""

from __future__ import annotations

from typing import Any

from sunfleet_router.dialects import Json


def choice_of(answer: Json) -> Json:
    """The one choice of an answer or a chunk; empty for a chunk that has none."""
    choices = answer.get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}


def count(usage: Json | None, name: str) -> int:
    """A number of a usage object; 0 where it has none."""
    value = (usage or {}).get(name)
    return value if isinstance(value, int) else 0


def detail(usage: Json | None, group: str, name: str) -> int | None:
    """A number of one of a usage object's groups of details."""
    details: Any = (usage or {}).get(group)
    value = details.get(name) if isinstance(details, dict) else None
    return value if isinstance(value, int) else None


def calls_of(message: Json) -> list[Json]:
    """The tool calls of a message or delta."""
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def function_of(call: Json) -> Json:
    """Name and arguments of a tool call, as far as a chunk tells them."""
    function = call.get("function")
    return function if isinstance(function, dict) else {}
