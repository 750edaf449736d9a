"""The blocks of a message's content as messages of a chat. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from sunfleet_router.dialects import Json
from sunfleet_router.dialects.reading import an_object, objects, text, wrong

# A header of one client, other in every request: as part of the prompt it would keep every prefix from being cached.
_NOT_FOR_THE_PROMPT: Final = "x-anthropic-billing-header"


@dataclass(slots=True)
class _Parts:
    """What the blocks of one message add up to."""

    role: str
    before: list[Json] = field(default_factory=list)  # messages of tools, which come first
    content: list[Json] = field(default_factory=list)
    calls: list[Json] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)


def texts_of(found: Iterable[Json]) -> Iterator[str]:
    """The texts of a system prompt's blocks."""
    for block in found:
        if block.get("type") == "text" and block.get("text"):
            said = text(block["text"], "system.text")
            if not said.startswith(_NOT_FOR_THE_PROMPT):
                yield said


def to_messages(role: str, found: list[Json]) -> list[Json]:
    """The messages that one message becomes, with the results of tools before the rest of it."""
    parts = _Parts(role)
    for block in found:
        kind = block.get("type")
        if kind not in _KINDS:
            raise wrong("messages.content.type", "one of " + ", ".join(sorted(_KINDS)))
        _KINDS[kind](parts, block)
    message: Json = {"role": role}
    if parts.reasoning:
        message["reasoning"] = "".join(parts.reasoning)
    if parts.calls:
        message["tool_calls"] = parts.calls
    if parts.content:
        only_text = len(parts.content) == 1 and parts.content[0]["type"] == "text"
        message["content"] = parts.content[0]["text"] if only_text else parts.content
    empty_user = role == "user" and "content" not in message
    return [*parts.before, *([] if empty_user else [message])]


def _text(parts: _Parts, block: Json) -> None:
    if block.get("text"):
        parts.content.append({"type": "text", "text": text(block["text"], "messages.content.text")})


def _image(parts: _Parts, block: Json) -> None:
    parts.content.append(_image_part(block))


def _thinking(parts: _Parts, block: Json) -> None:
    parts.reasoning.append(text(block.get("thinking"), "messages.content.thinking"))


def _tool_use(parts: _Parts, block: Json) -> None:
    # As the engine's own server writes it: the template shows the model these very characters.
    arguments = json.dumps(an_object(block.get("input"), "messages.content.input"))
    function = {"name": text(block.get("name"), "messages.content.name"), "arguments": arguments}
    call_id = text(block.get("id"), "messages.content.id")
    parts.calls.append({"id": call_id, "type": "function", "function": function})


def _tool_result(parts: _Parts, block: Json) -> None:
    content = block.get("content") or ""
    if parts.role != "user":
        raise wrong("messages.content", "without tool_result in an assistant's message")
    call_id = text(block.get("tool_use_id"), "messages.content.tool_use_id")
    given = [] if isinstance(content, str) else objects(content, "messages.content.content")
    said = content if isinstance(content, str) else "\n".join(part["text"] for part in given if _is(part, "text"))
    parts.before.append({"role": "tool", "tool_call_id": call_id, "content": said})
    images = [_image_part(part) for part in given if _is(part, "image")]
    if images:
        parts.before.append({"role": "user", "content": images})
    names = [part.get("tool_name") or part.get("name") for part in given if _is(part, "tool_reference")]
    if names:
        references = [{"type": "tool_reference", "name": name} for name in names if name]
        parts.before.append({"role": "tool", "tool_call_id": call_id, "content": references})


def _is(part: Json, kind: str) -> bool:
    if part.get("type") == "text":
        text(part.get("text"), "messages.content.content.text")
    return part.get("type") == kind


def _image_part(block: Json) -> Json:
    source = an_object(block.get("source"), "messages.content.source")
    if source.get("type") == "url":
        url = text(source.get("url"), "messages.content.source.url")
    else:
        data = text(source.get("data"), "messages.content.source.data")
        url = f"data:{source.get('media_type', 'image/jpeg')};base64,{data}"
    return {"type": "image_url", "image_url": {"url": url}}


def _nothing(_: _Parts, __: Json) -> None:
    """Opaque to every model here, or said elsewhere; a client may send back what it once got."""


_KINDS: Final[dict[Any, Callable[[_Parts, Json], None]]] = {
    "text": _text,
    "image": _image,
    "thinking": _thinking,
    "redacted_thinking": _nothing,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
    "tool_reference": _nothing,
}
