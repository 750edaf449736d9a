"""The seed: tokens generated so far, which a decode pod counts as *output* of the request it takes over.

Counted as output they are the engine's own business from there on: the pull covers exactly the prompt, the scheduler
computes the rest, and penalties, ``min_tokens``, stop strings, grammars and usage come out as if one engine had
generated everything. Here is what the stock engine does not do by itself: append them, and report them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from vllm.v1.core.sched.utils import check_stop
from vllm.v1.engine import EngineCoreOutput, FinishReason
from vllm.v1.metrics.stats import PrefillStats
from vllm.v1.outputs import LogprobsLists
from vllm.v1.request import Request, RequestStatus

from sunfleet_worker.handover import LOWEST_LOGPROB, SeedLogprobs, seed_logprobs, seed_of


def plant_seed(request: Request) -> list[int]:
    """Append the seed to the request's output tokens; returns it, empty if the request has none."""
    seed = seed_of(request.kv_transfer_params)
    if seed:
        request.append_output_token_ids(list(seed))
    return seed


def finished_by_seed(request: Request, max_model_len: int) -> RequestStatus | None:
    """The finished status if the seed itself ends the answer (EOS, a stop token, ``max_tokens``), else ``None``.

    Sets the request's stop reason as the engine's own check does, and leaves its status alone.
    """
    waiting = request.status
    finished = bool(request.num_output_tokens) and check_stop(request, max_model_len)
    status, request.status = request.status, waiting
    return status if finished else None


def seed_output(
    request: Request, *, prefill_stats: PrefillStats | None = None, finish: FinishReason | None = None
) -> EngineCoreOutput:
    """What the engine would have sent when it sampled these tokens, with their log-probabilities if asked for.

    ``prefill_stats`` must ride on a request's first output, which is this one: later ones are not counted.
    """
    params = request.kv_transfer_params
    return EngineCoreOutput(
        request_id=request.request_id,
        new_token_ids=list(seed_of(params)),
        new_logprobs=_logprobs(request, params),
        finish_reason=finish,
        stop_reason=request.stop_reason if finish is not None else None,
        events=request.take_events(),
        prefill_stats=prefill_stats,
        trace_headers=request.trace_headers,
    )


def _logprobs(request: Request, params: Mapping[str, Any] | None) -> LogprobsLists | None:
    sampling = request.sampling_params
    if sampling is None or sampling.num_logprobs is None:
        return None
    rows = seed_logprobs(params)
    if rows is None:
        return None
    return LogprobsLists(
        np.asarray(rows.token_ids, dtype=np.int32),
        np.asarray(rows.logprobs, dtype=np.float32),
        np.asarray(rows.ranks, dtype=np.int32),
    )


def logprobs_to_wire(logprobs: LogprobsLists) -> dict[str, Any]:
    """The prefill's side of :func:`seed_output`: log-probabilities of the tokens it sampled, as JSON can carry them.

    JSON knows no infinity, which a grammar gives to what it forbids.
    """
    finite = np.maximum(logprobs.logprobs, LOWEST_LOGPROB)
    return SeedLogprobs(
        logprobs.logprob_token_ids.tolist(), finite.tolist(), logprobs.sampled_token_ranks.tolist()
    ).to_wire()
