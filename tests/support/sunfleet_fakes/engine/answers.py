"""Bodies and events in the shapes of vLLM's OpenAI server. Pure."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sunfleet_fakes.engine import logprobs, tokens
from sunfleet_fakes.engine.request import Generation

DONE = b"data: [DONE]\n\n"


def dumps(value: object) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


def event(value: object) -> bytes:
    """One server-sent event."""
    return b"data: " + dumps(value) + b"\n\n"


@dataclass(frozen=True)
class Answer:
    """Shapes of one answer; ``cached_tokens`` is the prompt's part that was not computed here."""

    request: Generation
    id: str
    cached_tokens: int = 0
    reasoning_tokens: int = 0  # of a chat
    calls_tools: bool = False
    stop_reason: str | None = None
    created: int = field(default_factory=lambda: int(time.time()))

    def usage(self, completion: int) -> dict[str, Any]:
        """Token counts as the engine reports them."""
        prompt = len(self.request.prompt)
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + completion,
            "completion_tokens": completion,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens} if self.cached_tokens else None,
        }

    def whole(self, output: Sequence[int], finish: str, transfer: Mapping[str, Any] | None) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        ids = list(output) if self.request.return_token_ids else None
        prompt_ids = list(self.request.prompt) if self.request.return_token_ids else None
        text = "".join(map(tokens.token_text, output))
        choice: dict[str, Any] = {"index": 0, **self._end(finish)}
        choice["logprobs"] = self.logprobs(output, 0)
        body = self._head("")
        if self.request.kind == "chat":
            choice |= {"message": {"role": "assistant", **self._message(output, finish)}, "token_ids": ids}
            body["prompt_token_ids"] = prompt_ids
        else:
            choice |= {"text": text, "token_ids": ids, "prompt_token_ids": prompt_ids}
        return {
            **body,
            "choices": [choice],
            "usage": self.usage(len(output)),
            "kv_transfer_params": dict(transfer) if transfer is not None else None,
        }

    def opening(self) -> Iterator[bytes]:
        """What a stream sends before its first token."""
        if self.request.kind == "chat":
            ids = {"prompt_token_ids": list(self.request.prompt)} if self.request.return_token_ids else {}
            yield event({**self._chunk({"delta": {"role": "assistant", "content": ""}}), **ids, **self._continuous(0)})

    def logprobs(self, new: Sequence[int], offset: int) -> dict[str, Any] | None:
        """Of some tokens, as asked for; ``offset``: characters of the text before."""
        if self.request.logprobs is None:
            return None
        rows = logprobs.rows(new, self.request.logprobs)
        return logprobs.for_chat(rows) if self.request.kind == "chat" else logprobs.for_completion(rows, offset)

    def piece(self, before: Sequence[int], new: Sequence[int], finish: str | None) -> bytes:
        """One event with new tokens, after those ``before``."""
        text, first = "".join(map(tokens.token_text, new)), not before
        chat = self.request.kind == "chat"
        choice: dict[str, Any] = {"delta": self._delta(before, text, finish)} if chat else {"text": text}
        if self.request.return_token_ids:
            choice["token_ids"] = list(new)
            if first and not chat:
                choice["prompt_token_ids"] = list(self.request.prompt)
        offset = sum(len(tokens.token_text(token)) for token in before)
        choice |= {"logprobs": self.logprobs(new, offset), **self._end(finish)}
        return event({**self._chunk(choice), **self._continuous(len(before) + len(new))})

    def closing(self, completion: int) -> Iterator[bytes]:
        """The usage event, when asked for, and the end mark."""
        if self.request.include_usage:
            yield event({**self._head(".chunk"), "choices": [], "usage": self.usage(completion)})
        yield DONE

    def _message(self, output: Sequence[int], finish: str) -> dict[str, Any]:
        """What the deltas of the same answer add up to."""
        reasoning = "".join(map(tokens.token_text, output[: self.reasoning_tokens]))
        rest = "".join(map(tokens.token_text, output[self.reasoning_tokens :]))
        if not self._tool:
            return {"reasoning": reasoning or None, "content": rest, "tool_calls": []}
        arguments = f'{{"said":"{rest}' + ('"}' if finish == "stop" else "")
        function = {"name": self._tool, "arguments": arguments}
        call = {"id": f"call-{self.id}", "type": "function", "function": function}
        return {"reasoning": reasoning or None, "content": None, "tool_calls": [call]}

    def _delta(self, before: Sequence[int], text: str, finish: str | None) -> dict[str, Any]:
        place = len(before) - self.reasoning_tokens
        if place < 0:
            return {"reasoning": text}
        if not self._tool:
            return {"content": text}
        function: dict[str, Any] = {"arguments": text + ('"}' if finish == "stop" else "")}
        call: dict[str, Any] = {"index": 0, "function": function}
        if place == 0:
            call |= {"id": f"call-{self.id}", "type": "function"}
            function |= {"name": self._tool, "arguments": '{"said":"' + function["arguments"]}
        return {"tool_calls": [call]}

    @property
    def _tool(self) -> str:
        return self.request.tool if self.calls_tools and self.request.kind == "chat" else ""

    def _end(self, finish: str | None) -> dict[str, Any]:
        by_itself = finish == "stop"
        return {
            "finish_reason": "tool_calls" if by_itself and self._tool else finish,
            "stop_reason": self.stop_reason if by_itself else None,
        }

    def _continuous(self, completion: int) -> dict[str, Any]:
        return {"usage": self.usage(completion)} if self.request.continuous_usage else {}

    def _chunk(self, choice: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._head(".chunk"), "choices": [{"index": 0, "logprobs": None, "finish_reason": None, **choice}]}

    def _head(self, suffix: str) -> dict[str, Any]:
        chat = self.request.kind == "chat"
        return {
            "id": self.id,
            "object": f"chat.completion{suffix}" if chat else "text_completion",
            "created": self.created,
            "model": self.request.answer_model,
        }
