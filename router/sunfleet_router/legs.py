"""The bodies of the two engine calls and the reading of the first one's answer. Pure; ``sunfleet_api.wire`` is the
contract.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from sunfleet_api import wire
from sunfleet_router.clientbody import Ask
from sunfleet_router.errors import HandoverIncompleteError, LegFailedError

PATHS: Final = {"chat": "/v1/chat/completions", "completion": "/v1/completions"}

_NOT_FOR_PREFILL: Final = ("max_completion_tokens", "stream_options", "stream_interval")


@dataclass(frozen=True, slots=True)
class PrefillReply:
    """What the prefill leg gave: the whole answer, and the parts of the hand-over."""

    answer: dict[str, Any]
    prompt: list[int]
    output: list[int]  # the first token
    transfer: Mapping[str, Any]
    finish_reason: str | None

    def finished(self, ask: Ask, max_model_len: int | None) -> bool:
        """Whether the first token already is the whole answer, so that nothing is left to decode."""
        if ask.output_limit == 1:
            return True
        if self.finish_reason != "length":
            return True
        return max_model_len is not None and len(self.prompt) + len(self.output) >= max_model_len


def prefill_body(ask: Ask, salt: str) -> bytes:
    """The client's request cut down to one token, not streamed, with the hand-over asked for."""
    body = {key: value for key, value in ask.body.items() if key not in _NOT_FOR_PREFILL}
    body |= {
        "model": wire.ENGINE_MODEL,
        "max_tokens": 1,
        "stream": False,
        "return_token_ids": True,
        "cache_salt": salt,
        "kv_transfer_params": wire.prefill_params(ask.max_tokens),
    }
    if ask.body.get("min_tokens"):
        body["min_tokens"] = 1
    return orjson.dumps(body)


def check_handover(reply: PrefillReply) -> None:
    """Raise :class:`HandoverIncompleteError` rather than let a decoder guess."""
    missing = wire.missing_fields(reply.transfer)
    if not reply.prompt:
        missing += (wire.KEY_PROMPT_TOKEN_IDS,)
    if not reply.output:
        missing += ("token_ids",)
    if missing:
        raise HandoverIncompleteError(missing)


def decode_body(ask: Ask, salt: str, reply: PrefillReply) -> bytes:
    """The client's request with the hand-over in it, which must be complete."""
    check_handover(reply)
    body = dict(ask.body)
    body["model"] = wire.ENGINE_MODEL
    body["kv_transfer_params"] = wire.decode_params(reply.transfer, reply.prompt, reply.output, ask.model)
    body["cache_salt"] = salt
    if ask.kind == "completion":
        body["prompt"] = reply.prompt
    return orjson.dumps(body)


def read_prefill(raw: bytes) -> PrefillReply:
    """Read a prefill's 200 answer; raises :class:`LegFailedError` when it is not an OpenAI answer with one choice."""
    try:
        answer = orjson.loads(raw)
        choice = answer["choices"][0]
        # The chat API names the prompt's ids beside the choices, the completions API inside.
        prompt = list[int](answer.get("prompt_token_ids") or choice.get("prompt_token_ids") or ())
        output = list[int](choice.get("token_ids") or ())
        transfer = dict[str, Any](answer.get("kv_transfer_params") or {})
        finish = choice.get("finish_reason")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        message = "The prefill engine's answer could not be read."
        raise LegFailedError("prefill", message, code="bad_engine_answer", retryable=True) from None
    return PrefillReply(answer=answer, prompt=prompt, output=output, transfer=transfer, finish_reason=finish)
