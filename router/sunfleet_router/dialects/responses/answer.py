"""The parts of a response: its items, its usage and the object around them. Pure."""

from __future__ import annotations

from typing import Any, Final

from sunfleet_router.dialects import Json
from sunfleet_router.dialects.chat import count, detail
from sunfleet_router.dialects.responses.tools import Named, custom_input

# Told back as they were asked for.
_ECHOED: Final[Json] = {
    "instructions": None, "metadata": None, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    "max_output_tokens": None, "max_tool_calls": None, "reasoning": None, "service_tier": "auto", "text": None,
    "truncation": "disabled", "user": None, "temperature": 1.0, "top_p": 1.0, "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}  # fmt: skip


def response(request: Json, request_id: str, created: object, model: object) -> Json:
    """The object around an answer that is not there yet."""
    told = {name: default if request.get(name) is None else request[name] for name, default in _ECHOED.items()}
    return {
        "id": f"resp_{request_id}", "object": "response", "created_at": created or 0, "model": model or "",
        "status": "in_progress", "error": None, "incomplete_details": None, "output": [], "usage": None,
        "background": False, "store": False, "previous_response_id": None,
        "top_logprobs": request.get("top_logprobs"), **told,
    }  # fmt: skip


def finished(begun: Json, output: list[Json], finish: object, usage: Json | None) -> Json:
    """The same object with its answer."""
    cut = finish == "length"
    return {
        **begun,
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": output,
        "usage": _usage(usage),
    }


def reasoning_item(item_id: str, said: str) -> Json:
    content = [{"type": "reasoning_text", "text": said}]
    return {"type": "reasoning", "id": item_id, "summary": [], "content": content, "status": "completed"}


def message_item(item_id: str, said: str, logprobs: list[Json] | None) -> Json:
    content = [text_part(said, logprobs)] if said else []
    return {"type": "message", "id": item_id, "role": "assistant", "status": "completed", "content": content}


def text_part(said: str, logprobs: list[Json] | None) -> Json:
    return {"type": "output_text", "text": said, "annotations": [], "logprobs": logprobs}


def call_item(item_id: str, call_id: object, named: Named, arguments: str) -> Json:
    if named.custom:
        given = custom_input(arguments)
        return {"type": "custom_tool_call", "id": item_id, "call_id": call_id, "name": named.name, "input": given}
    return {
        "type": "function_call", "id": item_id, "call_id": call_id, "name": named.name, "namespace": named.namespace,
        "arguments": arguments, "status": "completed",
    }  # fmt: skip


def logprobs_of(choice: Json) -> list[Json] | None:
    """Log-probabilities of a choice or of a chunk's; ``None`` without any."""
    given: Any = choice.get("logprobs")
    rows = given.get("content") if isinstance(given, dict) else None
    return rows if isinstance(rows, list) else None


def _usage(usage: Json | None) -> Json:
    prompt, completion = count(usage, "prompt_tokens"), count(usage, "completion_tokens")
    return {
        "input_tokens": prompt,
        "input_tokens_details": {
            "cached_tokens": detail(usage, "prompt_tokens_details", "cached_tokens") or 0,
            "cache_write_tokens": detail(usage, "prompt_tokens_details", "created_cache_tokens") or 0,
        },
        "output_tokens": completion,
        "output_tokens_details": {
            "reasoning_tokens": detail(usage, "completion_tokens_details", "reasoning_tokens") or 0,
        },
        "total_tokens": prompt + completion,
    }
