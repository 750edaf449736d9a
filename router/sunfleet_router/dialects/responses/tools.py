"""The tools of a Responses request as a chat's functions, and the way back from a function's name. Pure.

A namespace's function gets a flat name; a custom tool, which takes plain text, becomes a function with one string.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from sunfleet_router.dialects import Json
from sunfleet_router.dialects.reading import an_object, objects, text, unsupported, wrong

INPUT: Final = "input"  # the one argument of a custom tool's function
_OF_FUNCTION: Final = ("strict", "defer_loading")
_CUSTOM_SCHEMA: Final = {
    "type": "object",
    "properties": {INPUT: {"type": "string", "description": "The freeform text payload for this tool."}},
    "required": [INPUT],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Named:
    """What a function's name stands for in the request."""

    name: str
    namespace: str | None = None
    custom: bool = False


def flat_name(namespace: object, name: str) -> str:
    return f"{namespace}__{name}" if namespace else name


def functions_of(request: Json) -> list[Json]:
    """A chat's ``tools``; raises :class:`InvalidRequestError` for tools that nobody here could run."""
    functions: list[Json] = []
    for tool in objects(request.get("tools"), "tools"):
        kind = tool.get("type")
        if kind == "function":
            functions.append(_function(tool))
        elif kind == "custom":
            functions.append(_custom(tool))
        elif kind == "namespace":
            space = text(tool.get("name"), "tools.name")
            inner = objects(tool.get("tools"), "tools.tools")
            functions += [_function(one, space) for one in inner if one.get("type") == "function"]
        else:
            raise unsupported("tools", f"a tool of type {str(kind)[:64]!r} runs at OpenAI. Declare a function")
    return functions


def choice_of(request: Json, functions: list[Json]) -> Any:
    """A chat's ``tool_choice``."""
    choice = request.get("tool_choice", "auto")
    if choice in (None, "auto", "none", "required"):
        if choice == "required" and not functions:
            raise wrong("tool_choice", "auto or none without 'tools'")
        return choice or "auto"
    chosen = an_object(choice, "tool_choice")
    if chosen.get("type") not in ("function", "custom"):
        raise unsupported("tool_choice", f"the type {str(chosen.get('type'))[:64]!r}")
    name = text(chosen.get("name"), "tool_choice.name")
    names = [function["function"]["name"] for function in functions]
    found = [name] if name in names else [one for one in names if one.endswith(f"__{name}")]
    if len(found) != 1:
        raise wrong("tool_choice.name", "the name of exactly one of 'tools'")
    return {"type": "function", "function": {"name": found[0]}}


def names_of(request: Json) -> Mapping[str, Named]:
    """What the names of a chat's functions stand for, where it is not the same name."""
    found: dict[str, Named] = {}
    for tool in objects(request.get("tools"), "tools"):
        if tool.get("type") == "custom":
            found[tool["name"]] = Named(tool["name"], custom=True)
        elif tool.get("type") == "namespace":
            for one in objects(tool.get("tools"), "tools.tools"):
                if one.get("type") == "function":
                    found[flat_name(tool["name"], one["name"])] = Named(one["name"], tool["name"])
    return found


def custom_input(arguments: str) -> str:
    """The text that a custom tool was called with; arguments of another form are passed on as they are."""
    try:
        given = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return arguments
    value = given.get(INPUT) if isinstance(given, dict) else None
    return value if isinstance(value, str) else arguments


def _function(tool: Json, namespace: str | None = None) -> Json:
    function: dict[str, Any] = {
        "name": flat_name(namespace, text(tool.get("name"), "tools.name")),
        "description": tool.get("description"),
        "parameters": tool.get("parameters"),
    }
    function |= {name: tool[name] for name in _OF_FUNCTION if tool.get(name) is not None}
    return {"type": "function", "function": function}


def _custom(tool: Json) -> Json:
    if an_object(tool.get("format"), "tools.format").get("type") == "grammar":
        raise unsupported("tools.format", "the engine knows no grammars for custom tools")
    name = text(tool.get("name"), "tools.name")
    function = {"name": name, "description": tool.get("description"), "parameters": _CUSTOM_SCHEMA}
    return {"type": "function", "function": function}
