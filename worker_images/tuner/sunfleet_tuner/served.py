"""A conversation as the engine hands it to a chat template: what the API takes is not all written the same way.

The engine turns parts of a text into one text, arguments of tool calls into objects, and tools into its own order of
keys before it renders a prompt. Training data goes the same way, or the module would be tuned on prompts that no
request ever makes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

Message = Mapping[str, Any]

_FUNCTION_FIELDS: Final = ("name", "description", "parameters")


def messages_of(value: Any) -> list[Message]:
    """``value``, messages of the API, as templates get them; ValueError for what the API does not take."""
    if not isinstance(value, list) or not all(isinstance(entry, Mapping) and "role" in entry for entry in value):
        raise ValueError("messages have to be a list of objects with a role")
    return [_message(entry) for entry in value]


def tools_of(value: Any) -> list[dict[str, Any]] | None:
    """``value`` (tools of the API, or their JSON, as datasets hold them) as templates get it; None for no tools."""
    tools = _parsed(value, "tools") if isinstance(value, str) and value else value
    if not tools:
        return None
    if not isinstance(tools, list):
        raise ValueError("tools have to be a list")  # noqa: TRY004 - a fault of the data
    return [_tool(entry) for entry in tools]


def without_nulls(value: Any) -> Any:
    """``value`` without the keys that hold null, at any depth.

    Columns of a dataset hold every key of any row: absent ones come as null, which templates take for a value.
    """
    if isinstance(value, Mapping):
        return {key: without_nulls(part) for key, part in value.items() if part is not None}
    return [without_nulls(part) for part in value] if isinstance(value, list) else value


def _message(entry: Message) -> Message:
    made = {key: part for key, part in entry.items() if part is not None}
    made["content"] = _text(made.get("content", ""))
    if calls := made.pop("tool_calls", None):
        made["tool_calls"] = [_call(call) for call in calls]
    return made


def _text(content: Any) -> str:
    """Parts of a text are lines."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not all(_is_text(part) for part in content):
        raise ValueError("content has to be text, or a list of parts of type text: nothing else can be tuned")
    return "\n".join(part["text"] for part in content)


def _is_text(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _call(call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or call.get("type", "function") != "function":
        raise ValueError("tool_calls have to be objects of type function, with a function")
    given, name = function.get("arguments") or {}, f"the arguments of tool call {function.get('name')!r}"
    arguments = _parsed(given, name) if isinstance(given, str) else given
    if not isinstance(arguments, Mapping):
        raise ValueError(f"{name} have to be an object, or its JSON")  # noqa: TRY004 - as above
    return {**call, "function": {**function, "arguments": arguments}}


def _tool(entry: Any) -> dict[str, Any]:
    function = entry.get("function") if isinstance(entry, Mapping) else None
    if not isinstance(function, Mapping) or not function.get("name") or entry.get("type", "function") != "function":
        raise ValueError(
            'tools have to be {"type": "function", "function": {"name": ..., "description": ..., "parameters": ...}}, '
            "the form of requests"
        )
    made = {name: function.get(name) for name in _FUNCTION_FIELDS}
    strict = function.get("strict")
    return {"type": "function", "function": made if strict is None else {**made, "strict": strict}}


def _parsed(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{what} are no JSON: {error}") from error
