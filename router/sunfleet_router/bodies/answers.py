"""What the router says without a decoder, in the shape that the client asked for. Pure.

Answers made from the prefill's reply alone, when its first token already ends the text, and the last events of a stream
whose text was complete when it broke off.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from sunfleet_router.bodies import sse
from sunfleet_router.bodies.clientbody import Ask
from sunfleet_router.bodies.handover import PrefillReply
from sunfleet_router.bodies.told import Told, chunk_of

DONE: Final = b"data: [DONE]\n\n"

_INTERNAL: Final = ("kv_transfer_params", "ec_transfer_params", "prompt_logprobs")
_TOKEN_IDS: Final = ("prompt_token_ids", "token_ids")
_CHUNK_HEAD: Final = ("id", "created", "model", "system_fingerprint")


def whole(ask: Ask, reply: PrefillReply) -> bytes:
    """The not-streamed answer: JSON of a chat completion or a completion."""
    return orjson.dumps(_for_client(ask, reply))


def streamed(ask: Ask, reply: PrefillReply) -> bytes:
    """The same answer as a complete server-sent event stream, from the first chunk to ``[DONE]``."""
    answer = _for_client(ask, reply)
    head: dict[str, Any] = {key: answer[key] for key in _CHUNK_HEAD if key in answer}
    head["object"] = "chat.completion.chunk" if ask.kind == "chat" else "text_completion"
    usage = answer.get("usage")
    if ask.continuous_usage and ask.include_usage:
        head["usage"] = usage
    choice = answer["choices"][0]
    deltas = _chat_choices(choice) if ask.kind == "chat" else [choice]
    events = [_event({**head, "choices": [delta]}) for delta in deltas]
    if ask.include_usage:
        events.append(_event({**head, "choices": [], "usage": usage}))
    return b"".join([*events, DONE])


def without_ids(ask: Ask, raw: bytes) -> tuple[bytes, list[int]]:
    """A decoder's whole answer as the client asked for it, and the token ids that it named besides, if it did."""
    answer = orjson.loads(raw)
    choices = answer.get("choices")
    if not (isinstance(choices, list) and choices and isinstance(choices[0], dict)):
        return raw, []
    choice = choices[0]
    tokens = list(choice.get("token_ids") or ())
    if ask.body.get("return_token_ids"):
        return raw, tokens
    for holder in (answer, choice):
        for name in _TOKEN_IDS:
            if name in holder:
                holder[name] = None  # as the engine writes it
    return orjson.dumps(answer), tokens


def ending(ask: Ask, told: Told) -> bytes:
    """What is missing of a stream whose text has ended (``told.ended()``): usage, if asked for, and the end mark."""
    if told.last == sse.DONE:
        return b""
    last = chunk_of(told.last)
    if not ask.include_usage or last["choices"] == []:
        return DONE
    head: dict[str, Any] = {key: last[key] for key in (*_CHUNK_HEAD, "object") if key in last}
    usage = last.get("usage") or _usage(told)
    return _event({**head, "choices": [], "usage": usage}) + DONE


def _usage(told: Told) -> dict[str, Any]:
    """As the decoder would count: every token of the answer has been told."""
    prompt, completion = len(told.first.prompt), len(told.tokens)
    given = told.first.answer.get("usage") or {}
    return {
        **given, "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
    }  # fmt: skip


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


def _chat_choices(choice: dict[str, Any]) -> list[dict[str, Any]]:
    """A role chunk, then one that holds the message and how it ended: the order in which engines send them."""
    message: dict[str, Any] = dict(choice.get("message") or {})
    role = message.pop("role", "assistant")
    index = choice.get("index", 0)
    delta = {key: value for key, value in message.items() if value not in (None, [])}
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": number, **call} for number, call in enumerate(delta["tool_calls"])]
    rest = {key: value for key, value in choice.items() if key not in ("message", "index")}
    first = {"index": index, "delta": {"role": role, "content": ""}, "logprobs": None, "finish_reason": None}
    return [first, {"index": index, "delta": delta, **rest}]


def _for_client(ask: Ask, reply: PrefillReply) -> dict[str, Any]:
    hidden = _INTERNAL if ask.body.get("return_token_ids") else _INTERNAL + _TOKEN_IDS
    answer = {key: value for key, value in reply.answer.items() if key not in hidden}
    answer["model"] = ask.model
    answer["choices"] = [
        {key: value for key, value in choice.items() if key not in hidden} for choice in reply.answer["choices"]
    ]
    return answer
