"""A Messages request as the chat that vLLM's own server makes of it. Pure."""

from __future__ import annotations

from typing import Any, Final

from sunfleet_router.dialects import Json
from sunfleet_router.dialects.messages import blocks
from sunfleet_router.dialects.messages.tools import tools_of
from sunfleet_router.dialects.reading import an_object, flag, objects, picked, text, unsupported, wrong

_SAME_NAME: Final = ("model", "temperature", "top_p", "top_k", "watermarking", "chat_template_kwargs")
_EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")
_ELSEWHERE: Final = ("mcp_servers", "container")
_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}


def to_chat(request: Json) -> Json:
    """Raises :class:`InvalidRequestError` for what is no Messages request, or none that can be served exactly."""
    for name in _ELSEWHERE:
        if request.get(name):
            raise unsupported(name, "it runs at Anthropic")
    limit = request.get("max_tokens")
    if type(limit) is not int or limit < 1:
        raise wrong("max_tokens", "a whole number, at least 1")
    chat = prompt_of(request) | {"max_completion_tokens": limit}
    if request.get("stop_sequences") is not None:
        chat["stop"] = request["stop_sequences"]
    if flag(request.get("stream"), "stream"):
        chat |= {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    form = an_object(an_object(request.get("output_config"), "output_config").get("format"), "output_config.format")
    if form.get("schema") is not None:
        schema = {"name": "json_schema", "schema": form["schema"]}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}
    return chat


def prompt_of(request: Json) -> Json:
    """The part of the chat that decides its prompt."""
    messages = objects(request.get("messages"), "messages")
    if not messages:
        raise wrong("messages", "a list with at least one message")
    chat: Json = picked(request, _SAME_NAME)
    chat["messages"] = [*_system(request.get("system")), *(part for one in messages for part in _message(one))]
    effort = _effort(request)
    if effort is not None:
        chat["reasoning_effort"] = effort
    return chat | _tool_fields(request, messages)


def _system(system: object) -> list[Json]:
    if not system:
        return []
    said = system if isinstance(system, str) else "".join(blocks.texts_of(objects(system, "system")))
    return [{"role": "system", "content": said}] if said else []


def _message(message: Json) -> list[Json]:
    """The messages of a chat that one message becomes: results of tools have a role of their own there."""
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "system"):
        raise wrong("messages.role", "user, assistant or system")
    if role == "system":
        return _system(content)
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    if not isinstance(content, list):
        raise wrong("messages.content", "a string or a list of blocks")
    return blocks.to_messages(role, objects(content, "messages.content"))


def _effort(request: Json) -> str | None:
    effort = an_object(request.get("output_config"), "output_config").get("effort")
    if effort is not None and effort not in _EFFORTS:
        raise wrong("output_config.effort", "one of " + ", ".join(_EFFORTS))
    thinking = an_object(request.get("thinking"), "thinking")
    kind = thinking.get("type")
    if kind == "enabled":
        raise unsupported(
            "thinking", "a budget of thinking tokens needs a sampler that has seen every step. Use the type 'adaptive'"
        )
    if kind not in (None, "disabled", "adaptive"):
        raise wrong("thinking.type", "disabled or adaptive")
    return "none" if kind == "disabled" else effort


def _tool_fields(request: Json, messages: list[Json]) -> Json:
    tools = tools_of(objects(request.get("tools"), "tools"), messages)
    choice = an_object(request.get("tool_choice"), "tool_choice")
    fields: Json = {"tools": tools, "tool_choice": "auto"} if tools else {}
    if not choice:
        return fields
    kind = text(choice.get("type"), "tool_choice.type")
    if kind == "tool":
        name = text(choice.get("name"), "tool_choice.name")
        chosen: Any = {"type": "function", "function": {"name": name}}
    elif kind in _CHOICES:
        chosen = _CHOICES[kind]
    else:
        raise wrong("tool_choice.type", "auto, any, tool or none")
    if chosen == "auto" and not tools:
        return {}
    alone = flag(choice.get("disable_parallel_tool_use"), "tool_choice.disable_parallel_tool_use")
    return fields | {"tool_choice": chosen, "parallel_tool_calls": not alone}


def counted(request: Json) -> Json:
    """The body of a tokenizer request that renders the same prompt."""
    chat = prompt_of(request)
    template = dict(an_object(request.get("chat_template_kwargs"), "chat_template_kwargs"))
    if (effort := chat.get("reasoning_effort")) is not None:
        template = {"enable_thinking": effort != "none"} | template | {"reasoning_effort": effort}
    body = {name: chat[name] for name in ("model", "messages", "tools") if name in chat}
    return body | ({"chat_template_kwargs": template} if template else {})
