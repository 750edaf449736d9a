"""The hand-over between the two legs of a request, as it stands in ``kv_transfer_params`` of the engines' OpenAI API.

Prefill leg: the client's request with ``max_tokens=1``, not streamed, ``return_token_ids``, the task's ``cache_salt``
and :func:`prefill_params`. Its answer holds ``prompt_token_ids``, ``choices[0].token_ids`` (the first token) and the
``kv_transfer_params`` that :func:`missing_fields` checks; none if the first token ends the answer (its finish reason is
not ``length``), for then there is nothing to decode. Decode leg: the client's request, the same salt and
:func:`decode_params`. An engine pod answers to :data:`ENGINE_MODEL` whatever its role; the decoder writes the name in
``sun_response_model`` into its answers, so that the router can pass bytes on unread.

Resume: a decode stream that broke off goes on elsewhere. With :data:`KEY_PROGRESS` each event of a streamed decode leg
that tells output tokens begins with a comment line (:class:`Progress`) that names them; the router keeps these and
strips the line. A token is told when everything that it makes visible is written; one that shows nothing yet (held by a
parser) is named by the next event. The finish reason rides on the last token's event, so it is told with it. Tokens
count once their event has arrived whole. The router prefills the same token ids again (``resumed``), drops that leg's
token, and sends a decode leg with all told tokens as output and :func:`resume_params`: the decoder replays them
silently and tells only what comes after, which is usage and ``[DONE]`` when they were the whole answer.

Progress of a leg that is not streamed: ``GET`` :data:`PROGRESS_PATH` with ``?request=ID``, the ``x-request-id`` of a
leg that a decode pod works on, tells how many output tokens it has (:class:`LegProgress`): none until it has the
prompt's KV, then the ones that it was handed, then its own as well. A 404 for a request that it does not work on. Pods
that can say so in their :class:`EngineInfo`.

Release: ``POST`` :data:`RELEASE_PATH` on a prefill pod with ``{"kv_transfer_params": ...}`` of its answer frees KV that
no decoder will read. Safe to repeat, and after a decoder has read it. A released hand-over must not be sent to one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

# The model name of the module that a pod serves: the base or full weights, or the pod's one static adapter.
ENGINE_MODEL: Final = "sunfleet"
# The base beneath a static adapter; nobody asks for it, but the engine wants it named.
ENGINE_BASE_MODEL: Final = "sunfleet-base"

KEY_PROMPT_TOKEN_IDS: Final = "prompt_token_ids"  # noqa: S105 - the engine's own field: skips template and tokenizer
KEY_OUTPUT_TOKEN_IDS: Final = "sun_output_token_ids"  # noqa: S105 - tokens generated so far, counted as output
KEY_RESPONSE_MODEL: Final = "sun_response_model"  # the task's name, for the "model" field of the answer
KEY_PROGRESS: Final = "sun_progress"  # true: say in the stream which tokens were told
KEY_TOLD_TOKENS: Final = "sun_told_tokens"
KEY_CREATED: Final = "sun_created"  # on a resume: the "created" of the stream's first chunk
KEY_OUTPUT_LOGPROBS: Final = "sun_output_logprobs"  # rows of KEY_OUTPUT_TOKEN_IDS; the prefill adds its first token's
KEY_MAX_TOKENS: Final = "sun_max_tokens"  # the client's max_tokens, so that the prefill refuses what cannot fit
KEY_RESUMED: Final = "sun_resumed"  # on a prefill leg: only its KV is wanted, its token is dropped

RELEASE_PATH: Final = "/sunfleet/release"
PROGRESS_PATH: Final = "/sunfleet/progress"
PROGRESS_PREFIX: Final = b": sun "

# Without every one of these the stock engine would compute the prompt itself, with the wrong weights.
REQUIRED_TRANSFER_FIELDS: Final = (
    "remote_block_ids",
    "remote_engine_id",
    "remote_request_id",
    "remote_host",
    "remote_port",
)
_required = itemgetter(*REQUIRED_TRANSFER_FIELDS)

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


def prefill_params(max_tokens: int | None, *, resumed: bool = False) -> dict[str, Any]:
    """``kv_transfer_params`` of the prefill leg; ``max_tokens`` is the client's own, ``None`` when omitted.

    A client that wants one token is answered from this leg: no decoder will fetch the KV, so none is kept for it. The
    same when the first token ends the answer, unless the leg is for a ``resumed`` stream: its token does not count.
    """
    params = {"do_remote_decode": max_tokens != 1, "do_remote_prefill": False, KEY_MAX_TOKENS: max_tokens}
    return params | {KEY_RESUMED: True} if resumed else params


def missing_fields(params: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Names of the transfer fields that a prefill answer lacks; empty when the hand-over is complete."""
    given = params or {}
    try:
        values = _required(given)
    except KeyError:
        complete = False
    else:  # as mostly; in every request
        complete = None not in values and "" not in values and [] not in values
    return () if complete else tuple([name for name in REQUIRED_TRANSFER_FIELDS if given.get(name) in (None, "", [])])


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


@dataclass(frozen=True, slots=True)
class Progress:
    """Output tokens that one write of a decode stream tells, in order, with their log-probabilities if asked for.

    ``logprobs`` has the shape of :data:`KEY_OUTPUT_LOGPROBS`: ``{"token_ids": [[...]], "logprobs": [[...]], "ranks":
    [...]}``, one row for each token: the sampled token first, then the alternatives.
    """

    token_ids: tuple[int, ...]
    logprobs: Mapping[str, Any] | None = None

    def to_line(self) -> bytes:
        """The comment line, with its line feed; clients of server-sent events ignore it."""
        ids = ",".join(map(str, self.token_ids)).encode()
        rows = b"" if self.logprobs is None else b" " + json.dumps(self.logprobs, separators=(",", ":")).encode()
        return PROGRESS_PREFIX + ids + rows + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Progress:
        """Read :meth:`to_line`; raises :class:`ValueError` for anything else."""
        if not line.startswith(PROGRESS_PREFIX):
            raise ValueError("not a progress line")
        ids, _, rows = line.removeprefix(PROGRESS_PREFIX).strip().partition(b" ")
        logprobs = json.loads(rows) if rows else None
        if logprobs is not None and not isinstance(logprobs, dict):
            raise ValueError("the log-probabilities of a progress line must be an object")
        return cls(tuple(int(token) for token in ids.split(b",") if token), logprobs)


def resume_params(
    transfer: Mapping[str, Any],
    prompt: Sequence[int],
    output: Sequence[int],
    response_model: str,
    *,
    told: int,
    logprobs: Mapping[str, Any] | None,
    created: int | None,
) -> dict[str, Any]:
    """:func:`decode_params` for a stream that has begun and told the first ``told`` tokens of ``output``.

    ``told`` is the length of ``output``, or 0 before the first told token: then ``output`` holds the prefill's.
    ``logprobs`` has a row for each token of ``output``; ``None`` when none were asked for. ``created`` is that of the
    stream's first chunk.
    """
    resumed = {KEY_PROGRESS: True, KEY_TOLD_TOKENS: told, KEY_CREATED: created, KEY_OUTPUT_LOGPROBS: logprobs}
    given = {key: value for key, value in resumed.items() if value is not None}
    return decode_params(transfer, prompt, output, response_model) | given


class EngineInfo(BaseModel):
    """``GET /sunfleet/info`` of an engine pod: what the router needs to place work on it."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    role: Literal["prefill", "decode"]
    kv_capacity_tokens: int  # blocks x block size
    block_size: int
    max_model_len: int
    kv_fingerprint: str = ""  # what the operator expects the pod's KV to be
    kv_contract: str = ""  # what the running engine says of its KV; pods with unequal ones are no pair
    engine_version: str = ""
    accelerators: int = 1  # GPUs that the engine uses; for the accounts
    tells_progress: bool = False  # whether it answers to PROGRESS_PATH


class LegProgress(BaseModel):
    """Answer to :data:`PROGRESS_PATH`."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    tokens: int
