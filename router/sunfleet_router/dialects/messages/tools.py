"""The tools of a Messages request as a chat's. Pure."""

from __future__ import annotations

from typing import Any

from sunfleet_router.dialects import Json
from sunfleet_router.dialects.reading import an_object, objects, text, unsupported, wrong


def tools_of(declared: list[Json], messages: list[Json]) -> list[Json]:
    """The tools in effect at the conversation's end: system messages may have added some and taken others away."""
    tools = {text(tool.get("name"), "tools.name"): tool for tool in declared}
    removed: set[str] = set()
    for change in _changes(messages):
        tool = an_object(change.get("tool"), "messages.content.tool")
        definition = tool.get("definition")
        adds = change["type"] == "tool_addition"
        name = text((definition or tool).get("name"), "messages.content.tool.name")
        if definition is not None and adds:
            tools[name] = definition
        elif name not in tools:
            raise wrong("messages.content.tool.name", f"a tool that is declared; {name[:64]!r} is not")
        elif adds:
            tools[name] = {key: value for key, value in tools[name].items() if key != "defer_loading"}
        removed = removed - {name} if adds else removed | {name}
    return [_function(tool) for name, tool in tools.items() if name not in removed]


def _changes(messages: list[Json]) -> list[Json]:
    return [
        block
        for message in messages
        if message.get("role") == "system" and isinstance(message.get("content"), list)
        for block in objects(message["content"], "messages.content")
        if block.get("type") in ("tool_addition", "tool_removal")
    ]


def _function(tool: Json) -> Json:
    kind = tool.get("type")
    if kind not in (None, "custom"):
        raise unsupported(
            "tools", f"{str(kind)[:64]!r} runs at Anthropic. Declare a tool of your own with 'input_schema'"
        )
    schema = an_object(tool.get("input_schema"), "tools.input_schema")
    function: dict[str, Any] = {"name": text(tool.get("name"), "tools.name"), "description": tool.get("description")}
    function["parameters"] = schema if "type" in schema else {**schema, "type": "object"}
    function |= {key: tool[key] for key in ("strict", "defer_loading") if tool.get(key) is not None}
    return {"type": "function", "function": function}
