"""A chat's answer as a response, whole or event by event. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from sunfleet_router.dialects import Json
from sunfleet_router.dialects.chat import calls_of, choice_of, function_of
from sunfleet_router.dialects.responses import answer as parts
from sunfleet_router.dialects.responses.openitems import Call, Reasoning, Text
from sunfleet_router.dialects.responses.tools import Named


class Responding:
    """The answer to one request. Items follow each other: another kind of delta closes the open one."""

    def __init__(self, request: Json, chat: Json, request_id: str, names: Mapping[str, Named]) -> None:
        self._request = request
        self._shows_logprobs = bool(chat.get("logprobs")) and chat.get("include_reasoning") is not False
        self._request_id = request_id
        self._names = names
        self._response: Json = {}
        self._sequence = 0
        self._output: list[Json] = []
        self._open: Reasoning | Text | Call | None = None
        self._finish: object = None
        self._usage: Json | None = None

    # a whole answer

    def whole(self, answer: Json) -> Json:
        choice = choice_of(answer)
        message = choice.get("message") or {}
        output: list[Json] = []
        if message.get("reasoning") and self._request.get("include_reasoning") is not False:
            output.append(parts.reasoning_item(self._item_id("rs", 0), message["reasoning"]))
        calls = calls_of(message)
        if message.get("content") or not (output or calls):
            logprobs = parts.logprobs_of(choice) if self._shows_logprobs else None
            output.append(parts.message_item(self._item_id("msg", len(output)), message.get("content") or "", logprobs))
        for call in calls:
            function = function_of(call)
            named = self._named(function.get("name"))
            item_id = self._item_id(Call.prefix(named), len(output))
            output.append(parts.call_item(item_id, call.get("id"), named, function.get("arguments") or ""))
        begun = parts.response(self._request, self._request_id, answer.get("created"), answer.get("model"))
        return parts.finished(begun, output, choice.get("finish_reason"), answer.get("usage"))

    # a streamed one

    def chunk(self, chunk: Json) -> bytes:
        begin = b"" if self._response else self._begin(chunk)
        self._usage = chunk.get("usage") or self._usage
        choice = choice_of(chunk)
        self._finish = choice.get("finish_reason") or self._finish
        delta = choice.get("delta") or {}
        told = begin
        if delta.get("reasoning"):
            told += self._in_item(Reasoning) + self._said(str(delta["reasoning"]), None)
        logprobs = parts.logprobs_of(choice) if self._shows_logprobs else None
        if delta.get("content"):
            told += self._in_item(Text) + self._said(str(delta["content"]), logprobs)
        elif isinstance(self._open, Text):  # of a token that shows nothing, such as the last one
            self._open.logprobs += logprobs or ()
        return told + b"".join(map(self._tool_call, calls_of(delta)))

    def end(self) -> bytes:
        closed = self._close()
        whole = parts.finished(self._response, self._output, self._finish, self._usage)
        return closed + self._event("response.completed", {"response": whole})

    def broken(self, error: Mapping[str, Any]) -> bytes:
        code, message = error.get("code"), error.get("message")
        told = {"code": code, "message": message, "param": error.get("param")}
        failed = {**self._response, "status": "failed", "error": {"code": "server_error", "message": message}}
        return self._event("error", told) + self._event("response.failed", {"response": failed})

    def _begin(self, chunk: Json) -> bytes:
        self._response = parts.response(self._request, self._request_id, chunk.get("created"), chunk.get("model"))
        told = {"response": self._response}
        return self._event("response.created", told) + self._event("response.in_progress", told)

    # items

    def _in_item(self, kind: type[Reasoning] | type[Text]) -> bytes:
        if isinstance(self._open, kind):
            return b""
        closed = self._close()
        item = kind(self._item_id(kind.prefix, len(self._output)))
        self._open = item
        added = self._at("response.output_item.added", {"item": item.begun()})
        return closed + added + self._at("response.content_part.added", item.of_part({"part": item.part(done=False)}))

    def _said(self, said: str, logprobs: list[Json] | None) -> bytes:
        item = self._open
        assert isinstance(item, Reasoning | Text)  # noqa: S101 opened by the caller
        return self._at(f"{item.event}.delta", item.of_part(item.add(said, logprobs)))

    def _tool_call(self, call: Json) -> bytes:
        function, number = function_of(call), call.get("index")
        told = b""
        if function.get("name") and not (isinstance(self._open, Call) and self._open.number == number):
            told = self._close()
            named = self._named(function["name"])
            item_id = self._item_id(Call.prefix(named), len(self._output))
            self._open = Call(item_id, call.get("id"), named, number)
            told += self._at("response.output_item.added", {"item": self._open.begun()})
        item, arguments = self._open, function.get("arguments")
        if not arguments or not isinstance(item, Call):
            return told
        item.arguments += arguments
        if item.named.custom:  # its text is inside the arguments, and told when they are whole
            return told
        return told + self._at("response.function_call_arguments.delta", {"item_id": item.id, "delta": arguments})

    def _close(self) -> bytes:
        item, self._open = self._open, None
        if item is None:
            return b""
        told = b"".join(self._at(kind, fields) for kind, fields in item.ending())
        done = item.done()
        told += self._at("response.output_item.done", {"item": done})
        self._output.append(done)
        return told

    def _named(self, name: object) -> Named:
        return self._names.get(str(name), Named(str(name)))

    def _item_id(self, prefix: str, index: int) -> str:
        return f"{prefix}_{self._request_id}_{index}"

    def _at(self, kind: str, fields: Json) -> bytes:
        """An event of the item that is open."""
        return self._event(kind, {"output_index": len(self._output), **fields})

    def _event(self, kind: str, fields: Json) -> bytes:
        data = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return f"event: {kind}\n".encode() + b"data: " + orjson.dumps(data) + b"\n\n"
