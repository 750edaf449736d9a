"""A request body, read and checked as the worker would: pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from sunfleet_api import wire
from sunfleet_fakes.engine import logprobs, tokens

Kind = Literal["chat", "completion"]

_MOST_LOGPROBS = 20


class ApiError(Exception):
    """An answer other than 200, in OpenAI's error shape."""

    def __init__(
        self, status: int, message: str, *, code: str | int | None = None, kind: str = "BadRequestError"
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "param": None, "code": code or status}}


@dataclass(frozen=True)
class Generation:
    """One request for tokens."""

    kind: Kind
    model: str
    prompt: tuple[int, ...]
    max_tokens: int
    reserve_tokens: int  # of the client's answer, for the length check of a prefill
    min_tokens: int
    ignore_eos: bool
    stream: bool
    include_usage: bool
    continuous_usage: bool
    tool: str  # the tool that a model with tools would call here; empty without one
    return_token_ids: bool
    logprobs: int | None  # alternatives wanted for each token
    transfer: Mapping[str, Any]
    seed_tokens: tuple[int, ...]

    @property
    def progress(self) -> bool:
        """Whether the stream shall say which tokens it tells."""
        return bool(self.transfer.get(wire.KEY_PROGRESS))

    @property
    def told(self) -> int:
        """Tokens of ``seed_tokens`` that the client has got from another decoder."""
        return int(self.transfer.get(wire.KEY_TOLD_TOKENS) or 0)

    @property
    def resumed(self) -> bool:
        """Whether only the KV of this prefill is wanted."""
        return bool(self.transfer.get(wire.KEY_RESUMED))

    @property
    def answer_model(self) -> str:
        """The name to write into the answer."""
        return str(self.transfer.get(wire.KEY_RESPONSE_MODEL) or self.model)


@contextmanager
def readable() -> Iterator[None]:
    """What the engine's own models would not validate is a bad request here too."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ApiError(400, f"the request is of another shape: {error!r}") from error


def parse(kind: Kind, raw: bytes, max_model_len: int) -> Generation:
    """Read a body. Raises :class:`ApiError` 400."""
    with readable():
        return _parse(kind, raw, max_model_len)


def _parse(kind: Kind, raw: bytes, max_model_len: int) -> Generation:
    body = _json_object(raw)
    transfer = body.get("kv_transfer_params") or {}
    prompt = tuple(transfer.get(wire.KEY_PROMPT_TOKEN_IDS) or _prompt(kind, body))
    if not prompt:
        raise ApiError(400, "the prompt is empty")
    if body.get("n") not in (None, 1):
        raise ApiError(400, "n must be 1: an engine makes one answer per hand-over")
    max_tokens = body.get("max_completion_tokens") or body.get("max_tokens")
    room = max_model_len - len(prompt)
    wanted = transfer.get(wire.KEY_MAX_TOKENS) or max_tokens or 1
    if room < 1 or (wanted or 1) > room:
        raise ApiError(
            400,
            f"This model's maximum context length is {max_model_len} tokens. However, you requested {wanted} output"
            f" tokens and your prompt contains {len(prompt)} input tokens.",
        )
    default = 16 if kind == "completion" else room
    return Generation(
        kind=kind,
        model=str(body.get("model")),
        prompt=prompt,
        max_tokens=int(max_tokens or default),
        reserve_tokens=int(wanted),
        min_tokens=int(body.get("min_tokens") or 0),
        ignore_eos=bool(body.get("ignore_eos")),
        stream=bool(body.get("stream")),
        include_usage=bool((body.get("stream_options") or {}).get("include_usage")),
        continuous_usage=bool((body.get("stream_options") or {}).get("continuous_usage_stats")),
        tool=_tool(body),
        return_token_ids=bool(body.get("return_token_ids")),
        logprobs=_logprobs(kind, body),
        transfer=transfer,
        seed_tokens=tuple(transfer.get(wire.KEY_OUTPUT_TOKEN_IDS) or ()),
    )


def check_prefill(request: Generation) -> None:
    """What a prefill insists on: one token, for a decoder. Raises :class:`ApiError` 400."""
    follows = request.transfer.get("do_remote_decode") or request.transfer.get(wire.KEY_MAX_TOKENS) == 1
    if not follows or request.max_tokens != 1 or request.stream:
        message = "a prefill answers only do_remote_decode with max_tokens=1, not streamed"
        raise ApiError(400, message, code="handover_incomplete")


def check_handover(request: Generation) -> None:
    """What a decoder insists on: it must never compute a prompt. Raises :class:`ApiError` 400."""
    missing = list(wire.missing_fields(request.transfer))
    if not request.transfer.get("do_remote_prefill"):
        missing.append("do_remote_prefill")
    missing += [key for key in (wire.KEY_PROMPT_TOKEN_IDS, wire.KEY_OUTPUT_TOKEN_IDS) if not request.transfer.get(key)]
    if missing:
        message = f"kv_transfer_params lacks {', '.join(missing)}: a decoder answers only complete hand-overs"
        raise ApiError(400, message, code="handover_incomplete")
    resumes = wire.KEY_TOLD_TOKENS in request.transfer
    if request.told not in (0, len(request.seed_tokens)) or (resumes and not request.stream):
        raise ApiError(400, f"{wire.KEY_TOLD_TOKENS} must be 0 or all of the output, of a stream")
    given = request.transfer.get(wire.KEY_OUTPUT_LOGPROBS)
    if request.logprobs is not None and not logprobs.are_of(given, request.seed_tokens):
        raise ApiError(400, f"{wire.KEY_OUTPUT_LOGPROBS} must have one row for each output token")


def _json_object(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise ApiError(400, "the body must be a JSON object")
    return body


def _prompt(kind: Kind, body: Mapping[str, Any]) -> list[int]:
    if kind == "chat":
        messages = body.get("messages")
        if not isinstance(messages, list):
            raise ApiError(400, "messages must be a list")
        return tokens.tokenize(" ".join([*map(_message, messages), "<|assistant|>"]))
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return tokens.tokenize(prompt)
    if isinstance(prompt, list) and all(isinstance(item, int) for item in prompt):
        return prompt
    raise ApiError(400, "prompt must be one string or one list of token ids")


def _tool(body: Mapping[str, Any]) -> str:
    if not body.get("tools") or body.get("tool_choice") == "none":
        return ""
    return str(body["tools"][0]["function"]["name"])


def tokenize_body(raw: bytes) -> list[int]:
    """The tokens of a ``/tokenize`` body, of either kind. Raises :class:`ApiError` 400."""
    with readable():
        body = _json_object(raw)
        return _prompt("chat" if "messages" in body else "completion", body)


def detokenize_body(raw: bytes) -> list[int]:
    """The tokens of a ``/detokenize`` body. Raises :class:`ApiError` 400."""
    found = _json_object(raw).get("tokens")
    if not isinstance(found, list) or not all(isinstance(token, int) for token in found):
        raise ApiError(400, "tokens must be a list of token ids")
    return found


def _logprobs(kind: Kind, body: Mapping[str, Any]) -> int | None:
    if kind == "chat":
        wanted = int(body.get("top_logprobs") or 0) if body.get("logprobs") else None
    else:
        wanted = body.get("logprobs")
    if wanted is not None and not 0 <= wanted <= _MOST_LOGPROBS:
        raise ApiError(400, f"at most {_MOST_LOGPROBS} log-probabilities are told of each token")
    return wanted


def _message(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, list):
        content = " ".join(str(part.get("text", "")) for part in content)
    return f"<|{message.get('role')}|> {content}"
