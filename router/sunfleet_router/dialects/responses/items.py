"""The items of a Responses input as messages of a chat. Pure.

One message of an assistant may be several items: its reasoning, its text and each of its calls.
"""

from __future__ import annotations

import json
from typing import Any, Final

from sunfleet_router.dialects import Json
from sunfleet_router.dialects.reading import objects, text, unsupported, wrong
from sunfleet_router.dialects.responses.tools import INPUT, flat_name

_ROLES: Final = ("user", "system", "developer", "assistant")
_UNFINISHED: Final = ("in_progress", "incomplete")
_TEXTS: Final = ("input_text", "output_text", "text", "refusal")


def to_messages(given: object) -> list[Json]:
    """Raises :class:`InvalidRequestError` for an item that no message can be made of."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise wrong("input", "a string, or a list with at least one item")
    messages: list[Json] = []
    for item in objects(given, "input"):
        message = _message(item)
        if not (message["role"] == "assistant" and messages and _joined(messages[-1], message)):
            messages.append(message)
    return messages


def continues(given: object) -> bool:
    """Whether the last item is one that the model shall finish."""
    if not isinstance(given, list) or not given:
        return False
    last = given[-1]
    return last.get("type", "message") in ("message", "reasoning") and last.get("status") in _UNFINISHED


def _joined(before: Json, message: Json) -> bool:
    """Put a part of an assistant's message to the parts before it, if these are an assistant's and lack it."""
    if before["role"] != "assistant":
        return False
    (name,) = message.keys() - {"role"}
    if name == "tool_calls":
        before.setdefault("tool_calls", []).extend(message["tool_calls"])
        return True
    if before.get(name) is not None:
        return False
    before[name] = message[name]
    return True


def _message(item: Json) -> Json:
    kind = item.get("type", "message" if "role" in item else None)
    if kind == "message":
        return _said(item)
    if kind in ("function_call", "custom_tool_call"):
        return {"role": "assistant", "tool_calls": [_call(item, custom=kind == "custom_tool_call")]}
    if kind in ("function_call_output", "custom_tool_call_output"):
        call_id = text(item.get("call_id"), "input.call_id")
        return {"role": "tool", "tool_call_id": call_id, "content": _content(item.get("output"), "input.output")}
    if kind == "reasoning":
        return {"role": "assistant", "reasoning": _reasoning(item)}
    raise unsupported("input", f"items of type {str(kind)[:64]!r}")


def _said(item: Json) -> Json:
    role = item.get("role")
    if role not in _ROLES:
        raise wrong("input.role", "one of " + ", ".join(_ROLES))
    content = _content(item.get("content"), "input.content")
    if role == "assistant" and not isinstance(content, str):
        content = "".join(part.get("text", "") for part in content)
    return {"role": role, "content": content}


def _content(content: object, param: str) -> Any:
    """A string stays one; parts become those of a chat."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise wrong(param, "a string or a list of parts")
    return [_part(part, param) for part in objects(content, param)]


def _part(part: Json, param: str) -> Json:
    kind = part.get("type")
    if kind in _TEXTS:
        return {"type": "text", "text": text(part.get("refusal" if kind == "refusal" else "text"), f"{param}.text")}
    if kind == "input_image":
        if part.get("image_url") is None:
            raise unsupported(f"{param}.file_id", "this service keeps no files. Send an 'image_url'")
        image = {"url": text(part["image_url"], f"{param}.image_url"), "detail": part.get("detail") or "auto"}
        return {"type": "image_url", "image_url": image}
    raise unsupported(f"{param}.type", f"parts of type {str(kind)[:64]!r}")


def _call(item: Json, *, custom: bool) -> Json:
    name = flat_name(item.get("namespace"), text(item.get("name"), "input.name"))
    if custom:
        arguments = json.dumps({INPUT: item.get("input") or ""}, ensure_ascii=False)
    else:
        arguments = text(item.get("arguments"), "input.arguments")
    function = {"name": name, "arguments": arguments}
    return {"id": text(item.get("call_id"), "input.call_id"), "type": "function", "function": function}


def _reasoning(item: Json) -> str:
    if item.get("encrypted_content"):
        raise unsupported("input.encrypted_content", "nobody here can read it. Send the reasoning as 'content'")
    parts = objects(item.get("content"), "input.content") or objects(item.get("summary"), "input.summary")
    return text(parts[0].get("text"), "input.content.text") if parts else ""
