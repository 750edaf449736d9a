"""The bodies of the two engine calls and the reading of the first one's answer. Pure; ``sunfleet_api.wire`` is the
contract.
"""

from __future__ import annotations

from typing import Any, Final

from sunfleet_api import wire
from sunfleet_router.bodies.clientbody import Ask
from sunfleet_router.bodies.handover import PrefillReply
from sunfleet_router.bodies.longtext import dumps
from sunfleet_router.bodies.tokenids import TokenIds, take
from sunfleet_router.bodies.told import Told
from sunfleet_router.errors import HandoverIncompleteError, LegFailedError

PATHS: Final = {"chat": "/v1/chat/completions", "completion": "/v1/completions"}

# The prefill has cut the prompt already, and its KV is of that one.
_NOT_FOR_DECODE: Final = ("truncate_prompt_tokens", "truncation_side")
_NOT_FOR_PREFILL: Final = ("max_completion_tokens", "stream_options", "stream_interval")


def prefill_body(ask: Ask, salt: str, module: str) -> bytes:
    """The client's request cut down to one token, not streamed, with the hand-over asked for. ``module``: see Route."""
    return dumps(_prefill(ask, salt, module, wire.prefill_params(ask.max_tokens)))


def prefill_again_body(ask: Ask, salt: str, module: str, prompt: TokenIds) -> bytes:
    """The prefill leg of a resume: the same request over exactly the same token ids; only its KV is wanted."""
    return _prefill_over(ask, salt, module, prompt, wire.prefill_params(ask.max_tokens, resumed=True))


def prefill_over_body(ask: Ask, salt: str, module: str, prompt: TokenIds) -> bytes:
    """The prefill leg of the same request over exactly these token ids, from the beginning."""
    return _prefill_over(ask, salt, module, prompt, wire.prefill_params(ask.max_tokens))


def _prefill_over(ask: Ask, salt: str, module: str, prompt: TokenIds, params: dict[str, Any]) -> bytes:
    if ask.kind == "chat":  # its messages stay, but are not rendered
        return dumps(_prefill(ask, salt, module, params | {wire.KEY_PROMPT_TOKEN_IDS: prompt.json}))
    return dumps(_prefill(ask, salt, module, params) | {"prompt": prompt.json})


def _prefill(ask: Ask, salt: str, module: str, params: dict[str, Any]) -> dict[str, Any]:
    body = {key: value for key, value in ask.body.items() if key not in _NOT_FOR_PREFILL}
    body |= {
        "model": module,
        "max_tokens": 1,
        "stream": False,
        "return_token_ids": True,
        "cache_salt": salt,
        "kv_transfer_params": params,
    }
    if ask.body.get("min_tokens"):
        body["min_tokens"] = 1
    return body


def check_handover(reply: PrefillReply) -> None:
    """Raise :class:`HandoverIncompleteError` rather than let a decoder guess."""
    missing = wire.missing_fields(reply.transfer)
    if not reply.prompt.count:
        missing += (wire.KEY_PROMPT_TOKEN_IDS,)
    if not reply.output:
        missing += ("token_ids",)
    if missing:
        raise HandoverIncompleteError(missing)


def decode_body(ask: Ask, salt: str, reply: PrefillReply, *, ids: bool = False) -> bytes:
    """The client's request with the hand-over in it, which must be complete. ``ids``: a whole answer shall name its
    tokens.
    """
    check_handover(reply)
    params = wire.decode_params(reply.transfer, (), reply.output, ask.model)
    if ask.stream:
        params[wire.KEY_PROGRESS] = True
    return _decode(ask, salt, reply, params, **({"return_token_ids": True} if ids else {}))


def resume_body(ask: Ask, salt: str, reply: PrefillReply, told: Told) -> bytes:
    """The decode leg that goes on after what was told, with the KV of ``reply``, which must be complete."""
    check_handover(reply)
    # Rows that belong to this prefill's own token, which is dropped.
    transfer = {name: value for name, value in reply.transfer.items() if name != wire.KEY_OUTPUT_LOGPROBS}
    params = wire.resume_params(
        transfer, (), told.output, ask.model,
        told=len(told.tokens), logprobs=told.logprobs, created=told.created,
    )  # fmt: skip
    return _decode(ask, salt, reply, params)


def _decode(ask: Ask, salt: str, reply: PrefillReply, params: dict[str, Any], **more: Any) -> bytes:
    body = {key: value for key, value in ask.body.items() if key not in _NOT_FOR_DECODE} | more
    params[wire.KEY_PROMPT_TOKEN_IDS] = reply.prompt.json
    body |= {"model": wire.ENGINE_MODEL, "kv_transfer_params": params, "cache_salt": salt}
    if ask.kind == "completion":
        body["prompt"] = reply.prompt.json
    return dumps(body)


def read_prefill(raw: bytes) -> PrefillReply:
    """Read a prefill's 200 answer; raises :class:`LegFailedError` when it is not an OpenAI answer with one choice."""
    try:
        answer: Any  # whatever else it is, one of these finds out
        answer, prompt = take(raw)
        choice = answer["choices"][0]
        output: list[int] = list(choice.get("token_ids") or ())
        transfer: dict[str, Any] = dict(answer.get("kv_transfer_params") or {})
        finish = choice.get("finish_reason")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        message = "The prefill engine's answer could not be read."
        raise LegFailedError("prefill", message, code="bad_engine_answer", retryable=True) from None
    return PrefillReply(answer=answer, prompt=prompt, output=output, transfer=transfer, finish_reason=finish)
