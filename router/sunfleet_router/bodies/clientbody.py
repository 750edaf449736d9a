"""The client's request body, checked as far as the router must understand it; the rest is the engine's to judge.

Pure. What the two legs could not answer exactly (prompt log-probabilities, echo, beam search) is refused here, before
any engine works on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import orjson

from sunfleet_api import wire
from sunfleet_router.bodies import longtext
from sunfleet_router.bodies.longtext import LongText
from sunfleet_router.errors import InvalidRequestError

Kind = Literal["chat", "completion"]

# OpenAI's and the engine's default for /v1/completions; a chat without a limit runs to the end of the context.
COMPLETION_DEFAULT_MAX_TOKENS: Final = 16
# Text is never shorter than this many bytes a token on average, except for scripts whose bytes are mostly tokens; the
# estimate only holds until the prefill has counted.
BYTES_PER_TOKEN: Final = 3

# Beyond wire.INTERNAL_BODY_FIELDS: fields of the pinned engine's protocol that reach around the prompt or its
# scheduler.
_ENGINE_ONLY: Final = frozenset({
    "ec_transfer_params", "mm_payload", "prompt_embeds", "return_mm_kwargs", "routed_experts_prompt_start",
    "session_id",
})  # fmt: skip
REFUSED_FIELDS: Final = (wire.INTERNAL_BODY_FIELDS | _ENGINE_ONLY) - {"priority"}  # which orders the router's own line
_STEERING_PREFIX: Final = "sun_"
_STEERING_SIZE: Final = len(_STEERING_PREFIX)
_COUNTS: Final = frozenset({"n", "best_of", "min_tokens", "priority"})  # fields that few requests have

_NO_SUCH_ANSWER: Final = {
    "prompt_logprobs": "log-probabilities of the prompt are not available through a shared decoder",
    "echo": "echoing the prompt is not available through a shared decoder",
    "use_beam_search": "beam search is not available through a shared decoder",
    "suffix": "filling in the middle is not available through a shared decoder",
    "logprob_token_ids": "log-probabilities of chosen tokens are not available through a shared decoder",
    "thinking_token_budget": "a budget of thinking tokens needs a sampler that has seen every step",
    "return_prompt_text": "the decoder, which answers, never sees the prompt's text. Use POST /tokenize",
}
_UNANSWERABLE: Final = frozenset(_NO_SUCH_ANSWER)
# What most requests are made of, and nothing above is: a body of these alone needs none of the looks for those.
_PLAIN: Final = frozenset({
    "frequency_penalty", "logprobs", "max_completion_tokens", "max_tokens", "messages", "model", "presence_penalty",
    "prompt", "response_format", "seed", "stop", "stream", "stream_options", "temperature", "tool_choice", "tools",
    "top_logprobs", "top_p", "user",
})  # fmt: skip


@dataclass(slots=True)
class Ask:
    """A checked request. ``body`` is the client's, without the refused fields, its long texts unread (``longtext``);
    nothing changes it afterwards, nor this: it is not frozen because what is takes three times as long to make, in
    every request.
    """

    kind: Kind
    body: dict[str, Any]
    model: str
    stream: bool
    include_usage: bool
    continuous_usage: bool
    max_tokens: int | None  # what the client wrote; None when omitted
    prompt_tokens: int  # an estimate from above until the prefill has counted; of all prompts
    n: int = 1  # answers to each prompt
    prompts: int = 1  # of a batch; then body["prompt"] is the list of them
    size: int = 0  # bytes of the client's body
    priority: int = 0  # for the router's own line, as the engine's field: the lower, the sooner
    answers: int = field(init=False)  # single ones that the client wants; each needs its own two legs
    # Tokens that the engine will make at most; None: to the end of the context.
    output_limit: int | None = field(init=False)

    def __post_init__(self) -> None:
        self.answers = self.n * self.prompts
        omitted = self.max_tokens is None and self.kind == "completion" and "max_tokens" not in self.body
        self.output_limit = COMPLETION_DEFAULT_MAX_TOKENS if omitted else self.max_tokens

    def with_defaults(self, defaults: Mapping[str, float | int]) -> Ask:
        """With the task's own values for sampling fields that the client left out or null."""
        if not defaults:
            return self
        missing = {name: value for name, value in defaults.items() if self.body.get(name) is None}
        if self.kind == "chat" and self.max_tokens is not None:
            missing.pop("max_tokens", None)  # the client said max_completion_tokens
        if not missing:
            return self
        limit = missing.get("max_tokens")
        return replace(self, body=self.body | missing, max_tokens=self.max_tokens if limit is None else int(limit))


def parse(kind: Kind, raw: bytes) -> Ask:
    """Check a request body; raises :class:`InvalidRequestError` that names the field and what to do."""
    return check(kind, load(raw, longtext.loads), len(raw))


def check(kind: Kind, body: dict[str, Any], size: int) -> Ask:
    """:func:`parse` for a body that has been read already; ``size`` is that of its JSON, in bytes."""
    plain = body.keys() <= _PLAIN
    if not plain:
        refuse_steering(body)
        _refuse_unanswerable(body)
    model = model_of(body)
    stream = _flag(body, "stream") if "stream" in body else False
    options = _stream_options(body, stream=stream) if "stream_options" in body else {}
    max_tokens = _max_tokens(kind, body)
    n, priority = (1, 0) if plain or _COUNTS.isdisjoint(body) else _counts(body, max_tokens)
    estimate, prompts = (_chat_estimate(body, size), 1) if kind == "chat" else _completion_estimate(body)
    return Ask(
        kind=kind,
        body=body,
        model=model,
        stream=stream,
        include_usage=bool(options) and _flag(options, "include_usage", "stream_options.include_usage"),
        continuous_usage=bool(options)
        and _flag(options, "continuous_usage_stats", "stream_options.continuous_usage_stats"),
        max_tokens=max_tokens,
        prompt_tokens=estimate,
        n=n,
        prompts=prompts,
        size=size,
        priority=priority,
    )


def load(raw: bytes, loads: Callable[[bytes], Any] = orjson.loads) -> dict[str, Any]:
    """The JSON object that a body must be; raises :class:`InvalidRequestError`."""
    try:
        body = loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"The body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(body, dict):
        raise InvalidRequestError("The body must be a JSON object.", code="invalid_json")
    return body


def model_of(body: dict[str, Any]) -> str:
    """The model that a body names; raises :class:`InvalidRequestError`."""
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise InvalidRequestError("'model' must be a string: the name of a model from GET /v1/models.", param="model")
    return model


def refuse_steering(body: dict[str, Any]) -> None:
    """Refuse fields with which a client would steer the engine; ones that are null are taken out."""
    # A slice costs less than a call for each field.
    for name in [key for key in body if key in REFUSED_FIELDS or key[:_STEERING_SIZE] == _STEERING_PREFIX]:
        if body[name] is not None:
            raise InvalidRequestError(f"{name!r} is set by the service and may not be sent. Remove it.", param=name)
        del body[name]


def _refuse_unanswerable(body: dict[str, Any]) -> None:
    if _UNANSWERABLE.isdisjoint(body):
        return
    for name, reason in _NO_SUCH_ANSWER.items():
        # 0 asks for prompt log-probabilities too; false, null and what is empty ask for nothing.
        if body.get(name) not in (None, "", []) and body[name] is not False:
            raise InvalidRequestError(f"{name!r} is not supported: {reason}.", param=name, code="unsupported_parameter")


def _counts(body: dict[str, Any], max_tokens: int | None) -> tuple[int, int]:
    """(answers to each prompt, priority)."""
    n = _answers_per_prompt(body)
    _check_min_tokens(body, max_tokens)
    return n, _priority(body)


def _answers_per_prompt(body: dict[str, Any]) -> int:
    n, best_of = _integer(body, "n"), _integer(body, "best_of")
    if n is not None and n < 1:
        raise InvalidRequestError("'n' must be at least 1.", param="n")
    if best_of is not None and best_of != (n or 1):
        raise InvalidRequestError(
            "'best_of' must be equal to 'n' or left out: the engine ranks no answers.",
            param="best_of",
            code="unsupported_parameter",
        )
    return n or 1


def _flag(body: dict[str, Any], name: str, param: str | None = None) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise InvalidRequestError(f"{param or name!r} must be true or false.", param=param or name)
    return bool(value)


def _integer(body: dict[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise InvalidRequestError(f"{name!r} must be a whole number.", param=name)
    return value


def _priority(body: dict[str, Any]) -> int:
    """No engine sees it: there the order of requests is that in which they come."""
    value = _integer(body, "priority")
    body.pop("priority", None)
    return value or 0


def _stream_options(body: dict[str, Any], *, stream: bool) -> dict[str, Any]:
    options = body.get("stream_options")
    if options is None:
        return {}
    if not isinstance(options, dict):
        raise InvalidRequestError("'stream_options' must be an object.", param="stream_options")
    if options and not stream:
        raise InvalidRequestError("'stream_options' needs 'stream': true.", param="stream_options")
    return options


def _max_tokens(kind: Kind, body: dict[str, Any]) -> int | None:
    plain = body.get("max_tokens")
    if type(plain) is not int:
        plain = _integer(body, "max_tokens")
    newer = _integer(body, "max_completion_tokens") if "max_completion_tokens" in body else None
    # The engine knows max_completion_tokens for chats only, and there it wins.
    name, value = ("max_completion_tokens", newer) if kind == "chat" and newer is not None else ("max_tokens", plain)
    if value is not None and value < 1:
        raise InvalidRequestError(f"{name!r} must be at least 1.", param=name)
    return value


def _check_min_tokens(body: dict[str, Any], max_tokens: int | None) -> None:
    least = _integer(body, "min_tokens")
    if least is None:
        return
    if least < 0 or (max_tokens is not None and least > max_tokens):
        raise InvalidRequestError("'min_tokens' must be between 0 and 'max_tokens'.", param="min_tokens")


def _chat_estimate(body: dict[str, Any], size: int) -> int:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidRequestError("'messages' must be a list with at least one message.", param="messages")
    if not all(isinstance(message, dict) for message in messages):
        raise InvalidRequestError("Each of 'messages' must be an object.", param="messages")
    return size // BYTES_PER_TOKEN + 1


def _completion_estimate(body: dict[str, Any]) -> tuple[int, int]:
    """(tokens of all prompts, prompts)."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list | LongText):
        prompt = body["prompt"] = prompt[0]  # a batch of one has the same answer
    if isinstance(prompt, list) and prompt and all(isinstance(one, str | list | LongText) for one in prompt):
        return sum(map(_prompt_estimate, prompt)), len(prompt)
    return _prompt_estimate(prompt), 1


def _prompt_estimate(prompt: object) -> int:
    if isinstance(prompt, str):
        return len(prompt.encode(errors="surrogatepass")) // BYTES_PER_TOKEN + 1
    if isinstance(prompt, LongText):
        return prompt.size // BYTES_PER_TOKEN + 1
    if prompt == []:
        raise InvalidRequestError("'prompt' is empty.", param="prompt")
    if isinstance(prompt, list) and all(type(token) is int and token >= 0 for token in prompt):
        return len(prompt)
    raise InvalidRequestError(
        "'prompt' must be a string, a list of token ids, or a list of such prompts.", param="prompt"
    )
