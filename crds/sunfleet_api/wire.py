"""The hand-over between the two legs of a request, as it stands in ``kv_transfer_params`` of the engines' OpenAI API.

Prefill leg: the client's request with ``max_tokens=1``, not streamed, ``return_token_ids``, the task's ``cache_salt``
and :func:`prefill_params`. Its answer holds ``prompt_token_ids``, ``choices[0].token_ids`` (the first token) and the
``kv_transfer_params`` that :func:`missing_fields` checks. Decode leg: the client's request, the same salt and
:func:`decode_params`. An engine pod answers to :data:`ENGINE_MODEL` whatever its role; the decoder writes the name in
``sun_response_model`` into its answers, so that the router can pass bytes on unread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

# The model name of the module that a pod serves: the base or full weights, or the pod's one static adapter.
ENGINE_MODEL: Final = "sunfleet"
# The base beneath a static adapter; nobody asks for it, but the engine wants it named.
ENGINE_BASE_MODEL: Final = "sunfleet-base"

KEY_PROMPT_TOKEN_IDS: Final = "prompt_token_ids"  # noqa: S105 - the engine's own field: skips template and tokenizer
KEY_OUTPUT_TOKEN_IDS: Final = "sun_output_token_ids"  # noqa: S105 - tokens generated so far, counted as output
KEY_RESPONSE_MODEL: Final = "sun_response_model"  # the task's name, for the "model" field of the answer
KEY_MAX_TOKENS: Final = "sun_max_tokens"  # the client's max_tokens, so that the prefill refuses what cannot fit

# Without every one of these the stock engine would compute the prompt itself, with the wrong weights.
REQUIRED_TRANSFER_FIELDS: Final = (
    "remote_block_ids",
    "remote_engine_id",
    "remote_request_id",
    "remote_host",
    "remote_port",
)

# Fields of a request body that steer the engine; a client may not set them.
INTERNAL_BODY_FIELDS: Final = frozenset(
    {
        "kv_transfer_params",
        "cache_salt",
        "request_id",
        "priority",
        "data_parallel_rank",
        "vllm_xargs",
        "lora_request",
        "mm_processor_kwargs",
        "return_tokens_as_token_ids",
    }
)
# Headers that steer the engine or could forge its view of the request; matched in lower case, prefixes end in "-".
INTERNAL_HEADER_PREFIXES: Final = ("x-sunfleet-", "x-data-parallel-", "x-vllm-", "x-session-")


def prefill_params(max_tokens: int | None) -> dict[str, Any]:
    """``kv_transfer_params`` of the prefill leg; ``max_tokens`` is the client's own, ``None`` when omitted.

    A client that wants one token is answered from this leg: no decoder will fetch the KV, so none is kept for it.
    """
    return {"do_remote_decode": max_tokens != 1, "do_remote_prefill": False, KEY_MAX_TOKENS: max_tokens}


def missing_fields(params: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Names of the transfer fields that a prefill answer lacks; empty when the hand-over is complete."""
    given = params or {}
    return tuple(name for name in REQUIRED_TRANSFER_FIELDS if given.get(name) in (None, "", []))


def decode_params(
    transfer: Mapping[str, Any], prompt: Sequence[int], output: Sequence[int], response_model: str
) -> dict[str, Any]:
    """``kv_transfer_params`` of the decode leg from the prefill's answer and the tokens so far (at least one)."""
    return {
        **transfer,
        "do_remote_prefill": True,
        "do_remote_decode": False,
        KEY_PROMPT_TOKEN_IDS: list(prompt),
        KEY_OUTPUT_TOKEN_IDS: list(output),
        KEY_RESPONSE_MODEL: response_model,
    }


class EngineInfo(BaseModel):
    """``GET /sunfleet/info`` of an engine pod: what the router needs to place work on it."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    role: Literal["prefill", "decode"]
    kv_capacity_tokens: int  # blocks x block size
    block_size: int
    max_model_len: int
    kv_fingerprint: str = ""
    engine_version: str = ""
