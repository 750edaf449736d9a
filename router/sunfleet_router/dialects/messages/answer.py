"""A chat's answer as a Messages answer, whole or event by event. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from sunfleet_router.dialects import Json
from sunfleet_router.dialects.chat import calls_of, choice_of, count, detail, function_of
from sunfleet_router.errors import UnsayableAnswerError


class Message:
    """One answer. A block is open while its deltas come; another kind of delta closes it.

    ``refused`` makes the error object of a status and OpenAI's error.
    """

    def __init__(self, request_id: str, refused: Callable[[int, Mapping[str, Any]], Json]) -> None:
        self._id = f"msg_{request_id}"
        self._refused = refused
        self._begun = False
        self._index = -1  # of the last block that was opened
        self._open = ""  # its kind, while it is open
        self._call: object = None  # the number of the tool call that it is
        self._arguments: list[str] = []  # of the last tool call
        self._after_call: list[str] = []  # text that came while a tool call was open
        self._used_tool = False
        self._finish: tuple[object, object] = (None, None)  # finish and stop reason of the chat

    # a whole answer

    def whole(self, answer: Json) -> Json:
        """Raises :class:`UnsayableAnswerError` for a call whose arguments are JSON, and no object."""
        choice = choice_of(answer)
        message = choice.get("message") or {}
        calls = calls_of(message)
        content: list[Json] = []
        if message.get("reasoning"):
            content.append({"type": "thinking", "thinking": message["reasoning"], "signature": self._signature(0)})
        if message.get("content"):
            content.append({"type": "text", "text": message["content"]})
        content += [_tool_use(call) for call in calls]
        finish = choice.get("finish_reason"), choice.get("stop_reason")
        complete = bool(calls) and all(_is_json(function_of(call).get("arguments") or "{}") for call in calls)
        reason, sequence = _stop_reason(*finish, used_tool=bool(calls), complete=complete)
        return {
            **self._head(answer),
            "content": content or [{"type": "text", "text": ""}],  # clients look at the first block
            "stop_reason": reason,
            "stop_sequence": sequence,
            "usage": _usage(answer.get("usage")),
        }

    # a streamed one

    def chunk(self, chunk: Json) -> bytes:
        begin = b"" if self._begun else self._message_start(chunk)
        choice = choice_of(chunk)
        if not choice:
            return begin + self._message_delta(chunk)
        if choice.get("finish_reason") is not None:
            self._finish = choice["finish_reason"], choice.get("stop_reason")
        delta = choice.get("delta") or {}
        told = [begin, self._reasoning(delta.get("reasoning")), self._text(delta.get("content"))]
        return b"".join([*told, *map(self._tool_call, calls_of(delta))])

    def end(self) -> bytes:
        return self._close() + _event("message_stop", {})

    def broken(self, error: Mapping[str, Any]) -> bytes:
        return b"event: error\ndata: " + orjson.dumps(self._refused(502, error)) + b"\n\n"

    def _message_start(self, chunk: Json) -> bytes:
        self._begun = True
        message = {**self._head(chunk), "content": [], "stop_reason": None, "stop_sequence": None}
        return _event("message_start", {"message": {**message, "usage": _usage(chunk.get("usage"))}})

    def _message_delta(self, chunk: Json) -> bytes:
        reason, sequence = _stop_reason(
            self._finish[0] or "stop", self._finish[1],
            used_tool=self._used_tool, complete=self._used_tool and _is_json("".join(self._arguments)),
        )  # fmt: skip
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        return self._close() + _event("message_delta", {"delta": delta, "usage": _usage(chunk.get("usage"))})

    def _reasoning(self, said: object) -> bytes:
        if not said:
            return b""
        return self._in_block("thinking", {"thinking": ""}) + self._delta("thinking_delta", "thinking", said)

    def _text(self, said: object) -> bytes:
        if not said:
            return b""
        if self._open == "tool_use":  # blocks do not nest: it follows the call
            self._after_call.append(str(said))
            return b""
        return self._in_block("text", {"text": ""}) + self._delta("text_delta", "text", said)

    def _tool_call(self, call: Json) -> bytes:
        function, number = function_of(call), call.get("index")
        begin = b""
        if function.get("name") and (self._open != "tool_use" or number != self._call):
            self._used_tool, self._call, self._arguments = True, number, []
            block = {"id": call.get("id"), "name": function["name"], "input": {}}
            begin = self._close() + self._start("tool_use", block)
        arguments = function.get("arguments")
        if not arguments or self._open != "tool_use" or number != self._call:
            return begin
        self._arguments.append(arguments)
        return begin + self._delta("input_json_delta", "partial_json", arguments)

    # blocks

    def _in_block(self, kind: str, empty: Json) -> bytes:
        return b"" if self._open == kind else self._close() + self._start(kind, empty)

    def _start(self, kind: str, block: Json) -> bytes:
        self._index, self._open = self._index + 1, kind
        return _event("content_block_start", {"index": self._index, "content_block": {"type": kind, **block}})

    def _delta(self, kind: str, name: str, value: object) -> bytes:
        return _event("content_block_delta", {"index": self._index, "delta": {"type": kind, name: value}})

    def _close(self) -> bytes:
        if not self._open:
            return b""
        signed = b""
        if self._open == "thinking":
            signed = self._delta("signature_delta", "signature", self._signature(self._index))
        self._open = ""
        closed = signed + _event("content_block_stop", {"index": self._index})
        if not self._after_call:
            return closed
        said, self._after_call = "".join(self._after_call), []
        return closed + self._text(said) + self._close()

    def _signature(self, index: int) -> str:
        """Clients want one; it is never looked at."""
        return f"{self._id}-{index}"

    def _head(self, answer: Json) -> Json:
        return {"id": self._id, "type": "message", "role": "assistant", "model": answer.get("model", "")}


def _tool_use(call: Json) -> Json:
    function = function_of(call)
    try:
        arguments = orjson.loads(function.get("arguments") or "{}")
    except orjson.JSONDecodeError:  # cut off, which the stop reason says
        arguments = {}
    if not isinstance(arguments, dict):
        raise UnsayableAnswerError(
            f"The model called the tool {function.get('name')!r} with arguments that are no JSON object, which a "
            "message cannot hold. Ask again in other words, or ask for a chat completion, whose arguments are text."
        )
    return {"type": "tool_use", "id": call.get("id"), "name": function.get("name", ""), "input": arguments}


def _stop_reason(finish: object, stop: object, *, used_tool: bool, complete: bool) -> tuple[str | None, str | None]:
    """(stop_reason, stop_sequence). A stop string that cut a tool call short wins over it: it must not run."""
    if finish == "length":
        return "max_tokens", None
    if finish not in ("stop", "tool_calls"):
        return None, None
    if complete:
        return "tool_use", None
    if isinstance(stop, str):
        return "stop_sequence", stop
    return ("tool_use" if finish == "tool_calls" or used_tool else "end_turn"), None


def _usage(usage: Json | None) -> Json:
    """Anthropic counts what came from the cache apart from the rest of the prompt."""
    read = detail(usage, "prompt_tokens_details", "cached_tokens")
    made = detail(usage, "prompt_tokens_details", "created_cache_tokens")
    fresh = count(usage, "prompt_tokens") - (read or 0) - (made or 0)
    counted: Json = {"input_tokens": max(0, fresh), "output_tokens": count(usage, "completion_tokens")}
    if read is not None:
        counted["cache_read_input_tokens"] = read
    if made is not None:
        counted["cache_creation_input_tokens"] = made
    return counted


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def _event(kind: str, fields: Json) -> bytes:
    return f"event: {kind}\n".encode() + b"data: " + orjson.dumps({"type": kind, **fields}) + b"\n\n"
