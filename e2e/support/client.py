"""Questions to the router with the ``openai`` client, as a user would ask them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openai import OpenAI

PREFILL_HEADER = "x-sunfleet-prefill-pod"
DECODE_HEADER = "x-sunfleet-decode-pod"


@dataclass
class Answer:
    """One answer. ``decode_pod`` is empty when the first token was the whole answer."""

    model: str = ""
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    prompt_token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    prefill_pod: str = ""
    decode_pod: str = ""
    asked_at: float = 0.0  # on the monotonic clock, like the next two
    first_token_at: float = 0.0  # of a whole answer: when it was there
    ended_at: float = 0.0
    usage: dict[str, Any] = field(default_factory=dict)
    logprobs: list[float] = field(default_factory=list)  # of the chosen tokens, when asked for

    @property
    def seconds(self) -> float:
        """From question to end."""
        return self.ended_at - self.asked_at

    @property
    def first_token_seconds(self) -> float:
        """TTFT as the client sees it."""
        return self.first_token_at - self.asked_at


class RouterClient:
    """Greedy questions to the router at ``url``. An error answer raises the openai client's own exception."""

    def __init__(self, url: str, timeout: float = 120.0) -> None:
        # No retries: a test must see what the router answered first.
        self.openai = OpenAI(base_url=f"{url}/v1", api_key="unused", timeout=timeout, max_retries=0)

    def close(self) -> None:
        """Close its connections."""
        self.openai.close()

    def models(self) -> list[str]:
        return sorted(model.id for model in self.openai.models.list())

    def complete(self, model: str, prompt: Sequence[int] | str, *, stream: bool = False, **options: Any) -> Answer:
        """``/v1/completions`` over text or token ids."""
        body = {"model": model, "prompt": prompt if isinstance(prompt, str) else list(prompt), **options}
        return self._ask(self.openai.completions.with_raw_response.create, body, stream)

    def chat(
        self, model: str, messages: Sequence[Mapping[str, str]], *, stream: bool = False, **options: Any
    ) -> Answer:
        """``/v1/chat/completions``."""
        body = {"model": model, "messages": list(messages), **options}
        return self._ask(self.openai.chat.completions.with_raw_response.create, body, stream)

    def _ask(self, create: Any, body: dict[str, Any], stream: bool) -> Answer:
        # The engine's own fields, which OpenAI's API does not have, travel in extra_body.
        extra = {"return_token_ids": True} | body.pop("extra_body", {})
        options = {"stream_options": {"include_usage": True}} if stream else {}
        answer = Answer(asked_at=time.monotonic())
        raw = create(**body, temperature=0.0, stream=stream, extra_body=extra, **options)
        answer.prefill_pod = raw.headers.get(PREFILL_HEADER, "")
        answer.decode_pod = raw.headers.get(DECODE_HEADER, "")
        for part in raw.parse() if stream else [raw.parse()]:
            _add(answer, part.to_dict())
            if answer.token_ids and not answer.first_token_at:
                answer.first_token_at = time.monotonic()
        answer.ended_at = time.monotonic()
        return answer


def _add(answer: Answer, part: Mapping[str, Any]) -> None:
    """Add a whole answer, or one chunk of a stream."""
    answer.model = part.get("model") or answer.model
    answer.prompt_token_ids = part.get("prompt_token_ids") or answer.prompt_token_ids
    answer.usage = part.get("usage") or answer.usage
    for choice in part.get("choices", ()):
        said = choice.get("message") or choice.get("delta") or {}
        answer.text += choice.get("text") or said.get("content") or ""
        answer.token_ids += choice.get("token_ids") or []
        answer.prompt_token_ids = choice.get("prompt_token_ids") or answer.prompt_token_ids
        answer.logprobs += _logprobs(choice.get("logprobs") or {})
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason


def _logprobs(given: Mapping[str, Any]) -> list[float]:
    """Completions name them in a list, chats in one object a token."""
    return list(given.get("token_logprobs") or [one["logprob"] for one in given.get("content") or ()])
