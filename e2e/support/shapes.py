"""OpenAI answers, whole or streamed, in one form that two servers' answers can be compared in. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Json = dict[str, Any]

# Ids and times differ between any two answers; the model's name is the task's, and the first pair of engines' cache
# decides how many prompt tokens were cached.
_IGNORED = frozenset(
    {"id", "created", "model", "system_fingerprint", "object", "kv_transfer_params", "prompt_tokens_details"}
)
_JOINED = frozenset({"content", "text", "reasoning", "reasoning_content", "arguments"})
_LISTED = frozenset({"token_ids", "tokens", "token_logprobs", "top_logprobs", "text_offset"})
LOGPROB_DIGITS = 3


def of_whole(body: Mapping[str, Any]) -> Json:
    """A not-streamed answer, with log-probabilities rounded and what is empty left out."""
    shaped: Json = cleaned({"usage": body.get("usage"), "prompt_token_ids": body.get("prompt_token_ids")})
    shaped["choices"] = [cleaned(dict(choice)) for choice in body["choices"]]
    return shaped


def of_stream(events: Iterable[Mapping[str, Any]]) -> Json:
    """All chunks put together, in the form of :func:`of_whole`."""
    whole: Json = {"choices": {}, "usage": None, "prompt_token_ids": None}
    for event in events:
        whole["usage"] = event.get("usage") or whole["usage"]
        whole["prompt_token_ids"] = event.get("prompt_token_ids") or whole["prompt_token_ids"]
        for choice in event.get("choices", ()):
            _join(whole["choices"].setdefault(choice["index"], {"index": choice["index"], "message": {}}), choice)
    choices = [choice for _, choice in sorted(whole["choices"].items())]
    for choice in choices:
        choice["message"] = choice["message"] or None
    return of_whole({**whole, "choices": choices})


def _join(choice: Json, chunk: Mapping[str, Any]) -> None:
    for key, value in chunk.items():
        if key == "delta":
            _join_message(choice["message"], value)
        elif key == "logprobs" and value:
            _join_lists(choice.setdefault("logprobs", {}), value)
        elif key in _JOINED:
            choice[key] = choice.get(key, "") + (value or "")
        elif key in _LISTED:
            choice[key] = choice.get(key, []) + (value or [])
        elif value is not None:
            choice[key] = value


def _join_message(message: Json, delta: Mapping[str, Any]) -> None:
    for key, value in delta.items():
        if key == "tool_calls":
            for call in value or ():
                _join_call(message.setdefault("tool_calls", {}).setdefault(call["index"], {}), call)
        elif key in _JOINED:
            message[key] = message.get(key, "") + (value or "")
        elif value is not None:
            message[key] = value


def _join_call(call: Json, delta: Mapping[str, Any]) -> None:
    function = call.setdefault("function", {"name": "", "arguments": ""})
    for part in ("name", "arguments"):
        function[part] += (delta.get("function") or {}).get(part) or ""
    call["type"] = delta.get("type") or call.get("type")


def _join_lists(given: Json, more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        given[key] = given.get(key, []) + (value or []) if isinstance(value, list) else value


def cleaned(value: Any, ignored: frozenset[str] = _IGNORED, empty: tuple[Any, ...] = (None, [], {}, "")) -> Any:
    """Without what may differ and what is ``empty``; tool calls as a list without ids; floats rounded."""
    if isinstance(value, float):
        return round(value, LOGPROB_DIGITS) + 0.0
    if isinstance(value, list):
        return [cleaned(item, ignored, empty) for item in value]
    if not isinstance(value, dict):
        return value
    if value and all(isinstance(key, int) for key in value):  # tool calls of a stream, by index
        return [cleaned(call, ignored, empty) for _, call in sorted(value.items())]
    kept = {key: cleaned(item, ignored, empty) for key, item in value.items() if key not in ignored}
    return {key: item for key, item in kept.items() if item not in empty}
