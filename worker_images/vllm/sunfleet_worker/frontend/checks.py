"""What a pod refuses before the engine sees it. Pure: takes request objects, raises ``RefusedError``.

Requests are the engine's pydantic models; only attributes are used.
"""

from __future__ import annotations

from typing import Any, Final

from sunfleet_api import wire
from sunfleet_worker.errors import RefusedError
from sunfleet_worker.handover import missing_fields, seed_logprobs, seed_of, told_of

INCOMPLETE: Final = "handover_incomplete"
UNSUPPORTED: Final = "unsupported_parameter"
TOO_LONG: Final = "context_length_exceeded"


def check_decode_request(request: Any) -> None:
    """Refuse what a decode pod cannot answer exactly: no complete hand-over, or a parameter that needs the prompt.

    On a completion request the prompt is replaced by the hand-over's token ids, as the engine itself does for chats.
    """
    params = request.kv_transfer_params
    missing = missing_fields(params)
    prompt = (params or {}).get(wire.KEY_PROMPT_TOKEN_IDS)
    if not isinstance(prompt, list) or not prompt:
        missing = (*missing, wire.KEY_PROMPT_TOKEN_IDS)
    if not request.cache_salt:
        missing = (*missing, "cache_salt")
    if missing:
        raise RefusedError(
            "This is a decode pod: it continues prompts that a prefill pod has computed and never computes one. "
            f"The hand-over lacks: {', '.join(missing)}. Send requests to the Sunfleet router.",
            code=INCOMPLETE,
            param="kv_transfer_params",
        )
    _check_shape(request)
    if asked_logprobs(request) is not None and seed_logprobs(params) is None:
        raise RefusedError(
            "logprobs were asked for, but the hand-over has none for the tokens generated so far: "
            f"ask the prefill pod for them too, and hand over a row for each token in {wire.KEY_OUTPUT_LOGPROBS}.",
            code=INCOMPLETE,
            param="logprobs",
        )
    _check_resume(request, params)


def _check_resume(request: Any, params: dict[str, Any]) -> None:
    if wire.KEY_TOLD_TOKENS in params and not (request.stream and told_of(params) in (0, len(seed_of(params)))):
        raise RefusedError(
            f"{wire.KEY_TOLD_TOKENS} resumes a stream that has told all of {wire.KEY_OUTPUT_TOKEN_IDS}, or nothing: "
            "it must be their count or 0, and the request must be streamed.",
            code=INCOMPLETE,
            param="kv_transfer_params",
        )


def check_prefill_request(request: Any) -> None:
    """Refuse what is not a prefill leg; ``min_tokens`` is cut to the one token that this leg makes."""
    params = request.kv_transfer_params or {}
    limit = _max_tokens(request)
    one_token = params.get(wire.KEY_MAX_TOKENS) == 1  # answered from this leg: no decoder follows
    if not (params.get("do_remote_decode") or one_token) or limit != 1 or request.stream:
        raise RefusedError(
            "This is a prefill pod: it computes prompts and their first token for a decode pod. It takes requests with "
            "kv_transfer_params.do_remote_decode, max_tokens=1 and no stream. Send requests to the Sunfleet router.",
            code=INCOMPLETE,
            param="kv_transfer_params",
        )
    _check_shape(request)
    request.min_tokens = min(request.min_tokens or 0, 1)
    if params.get(wire.KEY_RESUMED):
        # The token of this leg is dropped, so it must not count as the end of the answer either.
        request.ignore_eos, request.stop, request.stop_token_ids = True, [], []


def _check_shape(request: Any) -> None:
    """Parameters that need several sequences, the prompt's own logits, or a sampler that has seen every step."""
    for name, unsupported in (
        ("n", (request.n or 1) > 1),
        ("use_beam_search", bool(request.use_beam_search)),
        ("echo", bool(getattr(request, "echo", False))),
        ("prompt_logprobs", request.prompt_logprobs is not None),
        ("best_of", (_extra(request, "best_of") or 1) > 1),
        ("suffix", bool(getattr(request, "suffix", None))),
        ("prompt_embeds", getattr(request, "prompt_embeds", None) is not None),
        ("logprob_token_ids", bool(getattr(request, "logprob_token_ids", None))),
        ("thinking_token_budget", getattr(request, "thinking_token_budget", None) is not None),
        ("prompt", _several_prompts(getattr(request, "prompt", None))),
    ):
        if unsupported:
            raise RefusedError(
                f"{_WHY.get(name, name)} is not supported by Sunfleet yet.", code=UNSUPPORTED, param=name
            )


_WHY: Final = {
    "n": "n greater than 1",
    "best_of": "best_of greater than 1",
    "prompt": "More than one prompt in a request",
}


def _extra(request: Any, name: str) -> Any:
    """A field that the engine's model does not know; OpenAI's older ones arrive so."""
    return (getattr(request, "model_extra", None) or {}).get(name)


def _several_prompts(prompt: Any) -> bool:
    return isinstance(prompt, list) and len(prompt) > 1 and not isinstance(prompt[0], int)


def asked_logprobs(request: Any) -> int | None:
    """How many log-probabilities beside the sampled token's a request asks for; ``None`` when for none at all."""
    if isinstance(request.logprobs, bool):  # chat
        return (request.top_logprobs or 0) if request.logprobs else None
    count: int | None = request.logprobs  # completion: 0 still asks for the sampled token's
    return count


def _max_tokens(request: Any) -> int | None:
    newer = getattr(request, "max_completion_tokens", None)
    limit: int | None = newer if newer is not None else request.max_tokens
    return limit


def check_fits(prompt: int, request: Any, max_model_len: int) -> None:
    """Refuse on a prefill leg what could not be finished: the engine itself would cut the answer short.

    Args:
        prompt: the prompt's length in tokens.
        request: carries the client's own ``max_tokens``; without one an answer needs room for one token.
        max_model_len: longest prompt plus answer, in tokens.
    """
    limit = (request.kv_transfer_params or {}).get(wire.KEY_MAX_TOKENS)
    answer = limit if isinstance(limit, int) else 1
    if prompt + answer > max_model_len:
        raise RefusedError(
            f"This model's maximum context length is {max_model_len} tokens. However, you requested {answer} output "
            f"tokens and your prompt contains {prompt} input tokens, {prompt + answer} in total. "
            "Please reduce the length of the prompt or max_tokens.",
            code=TOO_LONG,
            param="max_tokens" if limit else "prompt",
        )
