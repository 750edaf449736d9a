"""A Responses request as the chat whose prompt and sampling are those of vLLM's own server. Pure."""

from __future__ import annotations

from typing import Any, Final

from sunfleet_router.dialects import Json
from sunfleet_router.dialects.reading import an_object, flag, picked, text, unsupported, wrong
from sunfleet_router.dialects.responses import items
from sunfleet_router.dialects.responses.tools import choice_of, functions_of

# The engine's names for these are the same in both APIs; it judges the values.
SAME_NAME: Final = (
    "model", "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "seed", "stop", "stop_token_ids", "ignore_eos", "logit_bias", "skip_special_tokens", "include_stop_str_in_output",
    "include_reasoning", "parallel_tool_calls", "structured_outputs", "chat_template_kwargs", "media_io_kwargs",
    "watermarking", "user", "priority",
)  # fmt: skip
_NO_STATE: Final = "this service keeps no responses. Send the whole conversation as 'input'"
REFUSED: Final = {
    "previous_response_id": _NO_STATE,
    "conversation": _NO_STATE,
    "store": "this service keeps no responses. Leave it out, or send false",
    "background": "there is nowhere to keep its answer. Use 'stream'",
    "prompt": "there are no stored prompts. Send 'instructions' and 'input'",
    "previous_input_messages": "messages in the form of one model family are not read. Send them as 'input'",
    "enable_response_messages": "the engine's own messages are not shown",
}
_LOGPROBS: Final = "message.output_text.logprobs"
_TRUNCATIONS: Final = (None, "auto", "disabled")


def to_chat(request: Json) -> Json:
    """Raises :class:`InvalidRequestError` for what is no Responses request, or none that can be served exactly."""
    for name, why in REFUSED.items():
        if request.get(name):  # false, null and empty ask for nothing
            raise unsupported(name, why)
    chat: Json = picked(request, SAME_NAME) | _prompt(request) | _tools(request) | _form(request)
    if request.get("max_output_tokens") is not None:
        chat["max_completion_tokens"] = request["max_output_tokens"]
    if flag(request.get("stream"), "stream"):
        chat |= {"stream": True, "stream_options": {"include_usage": True}}
    if wants_logprobs(request):
        chat |= {"logprobs": True, "top_logprobs": request.get("top_logprobs") or 0}
    return chat


def wants_logprobs(request: Json) -> bool:
    include = request.get("include") or []
    if not isinstance(include, list):
        raise wrong("include", "a list")
    return _LOGPROBS in include


def _prompt(request: Json) -> Json:
    given = request.get("input")
    instructions = request.get("instructions")
    start = [{"role": "system", "content": text(instructions, "instructions")}] if instructions else []
    chat: Json = {"messages": [*start, *items.to_messages(given)]}
    if items.continues(given):
        chat |= {"add_generation_prompt": False, "continue_final_message": True}
    effort = an_object(request.get("reasoning"), "reasoning").get("effort")
    if effort is not None:
        chat["reasoning_effort"] = effort
    truncation = request.get("truncation")
    if truncation not in _TRUNCATIONS:
        raise wrong("truncation", "auto or disabled")
    if truncation == "auto":
        chat["truncate_prompt_tokens"] = -1
    return chat


def _tools(request: Json) -> Json:
    functions = functions_of(request)
    choice = choice_of(request, functions)
    if not functions:
        return {}
    return {"tools": functions, "tool_choice": choice}


def _form(request: Json) -> Json:
    """The form of the text as a chat names it."""
    form = an_object(an_object(request.get("text"), "text").get("format"), "text.format")
    kind: Any = form.get("type")
    if kind in (None, "text"):
        return {}
    if kind == "json_object":
        return {"response_format": {"type": "json_object"}}
    if kind != "json_schema":
        raise wrong("text.format.type", "text, json_object or json_schema")
    schema = {name: form[name] for name in ("name", "description", "schema", "strict") if form.get(name) is not None}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}
