"""Outputs that must not be taken together, and what of a replay is counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.unit.worker.api_process import PROMPT, TOKENIZER, encode
from tests.unit.worker.test_handover import complete
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest, FinishReason
from vllm.v1.engine.output_processor import OutputProcessor, RequestOutputCollector
from vllm.v1.metrics.stats import IterationStats, PrefillStats
from vllm.v1.outputs import LogprobsLists

from sunfleet_api import wire
from sunfleet_worker.frontend.steps import single_tokens, step_by_step
from sunfleet_worker.frontend.streams import WatchedEngine
from sunfleet_worker.handover import KEY_STEPWISE

IDS = encode("abcdef")
COMPUTED: list[int] = []


STEPWISE: dict[str, Any] = {KEY_STEPWISE: True}


def request(seed: int, external: str = "r", **params: Any) -> tuple[Any, RequestOutputCollector]:
    """A processor that waits for the request's first output, and the request's collector."""
    extra = {"kv_transfer_params": complete(sun_output_token_ids=IDS[:seed], **params)}
    sampling = SamplingParams(output_kind=RequestOutputKind.DELTA, extra_args=extra)
    processor = step_by_step(OutputProcessor(TOKENIZER, log_stats=True), COMPUTED.append)
    queue = RequestOutputCollector(sampling.output_kind, "r")
    core = EngineCoreRequest("r", PROMPT, None, sampling, None, 0.0, None, None, None, external_req_id=external)
    processor.add_request(core, None, None, 0, queue)
    return processor, queue


def taken(queue: RequestOutputCollector) -> list[list[int]]:
    """Tokens of the outputs that lie ready, one list for each."""
    pieces = []
    while (output := queue.get_nowait()) is not None:
        pieces.append(list(output.outputs[0].token_ids))
    return pieces


@pytest.mark.parametrize(
    ("params", "pieces"),
    [
        ({}, [IDS]),
        ({wire.KEY_TOLD_TOKENS: 0}, [IDS]),
        ({wire.KEY_TOLD_TOKENS: 3}, [IDS[:3], IDS[3:]]),
        ({KEY_STEPWISE: True}, [[token] for token in IDS]),
        ({KEY_STEPWISE: True, wire.KEY_TOLD_TOKENS: 3}, [[token] for token in IDS]),
    ],
    ids=["first pod", "nothing told", "resumed", "parsed", "resumed and parsed"],
)
def test_what_waits_is_merged_only_where_a_stream_may_take_it_together(
    params: dict[str, Any], pieces: list[list[int]]
) -> None:
    processor, queue = request(3, **params)
    for ids in (IDS[:3], *([token] for token in IDS[3:])):
        processor.process_outputs([EngineCoreOutput("r", list(ids))], 1.0, IterationStats())
    assert taken(queue) == pieces


def test_an_error_takes_the_place_of_what_waits() -> None:
    processor, queue = request(3, **STEPWISE)
    processor.process_outputs([EngineCoreOutput("r", IDS[:3])], 1.0, IterationStats())
    queue.put(RuntimeError("gone"))
    with pytest.raises(RuntimeError, match="gone"):
        queue.get_nowait()
    assert queue.get_nowait() is None


def test_a_replayed_seed_is_one_first_token_in_the_engines_statistics() -> None:
    processor, _ = request(3, **STEPWISE)
    stats, prefill = IterationStats(), PrefillStats()
    prefill.set(num_prompt_tokens=3, num_local_cached_tokens=0, num_external_cached_tokens=3)
    seed = EngineCoreOutput("r", IDS[:3], prefill_stats=prefill)
    processor.process_outputs([seed, EngineCoreOutput("r", [IDS[3]])], 1.0, stats)
    assert len(stats.time_to_first_tokens_iter) == 1
    assert len(stats.inter_token_latencies_iter) == 1, "of the token that was generated here"
    assert stats.prompt_token_stats.external_kv_transfer == 3


def test_what_a_pod_computed_of_a_prompt_is_told_once() -> None:
    processor, _ = request(2, **STEPWISE)
    COMPUTED.clear()
    prefill = PrefillStats()
    prefill.set(num_prompt_tokens=3, num_local_cached_tokens=1, num_external_cached_tokens=0)
    processor.process_outputs([EngineCoreOutput("r", IDS[:2], prefill_stats=prefill)], 1.0, IterationStats())
    processor.process_outputs([EngineCoreOutput("r", [IDS[2]])], 2.0, IterationStats())
    assert COMPUTED == [2]


@pytest.mark.parametrize("external", ["chatcmpl-abc", "cmpl-abc-0"])
def test_it_is_known_how_far_a_request_is_from_its_seed_to_its_end(external: str) -> None:
    processor, _ = request(2, external)
    engine: Any = SimpleNamespace(output_processor=processor)
    watched, told = WatchedEngine(engine, print), []
    told.append(watched.tokens_of("abc"))
    for ids in (IDS[:2], [IDS[2]]):
        processor.process_outputs([EngineCoreOutput("r", ids)], 1.0, IterationStats())
        told.append(watched.tokens_of("abc"))
    assert told == [0, 2, 3]
    assert watched.tokens_of("ab") is None
    processor.process_outputs([EngineCoreOutput("r", [9], finish_reason=FinishReason.STOP)], 1.0, IterationStats())
    assert watched.tokens_of("abc") is None


def test_single_tokens_keep_what_belongs_to_each_and_leave_the_end_to_the_last() -> None:
    logprobs = LogprobsLists(np.array([[1], [2]]), np.array([[-0.5], [-0.25]]), np.array([1, 2]))
    first, last = single_tokens(EngineCoreOutput("r", [1, 2], new_logprobs=logprobs, finish_reason=FinishReason.STOP))
    assert (first.new_token_ids, first.finish_reason) == ([1], None)
    assert (last.new_token_ids, last.finish_reason) == ([2], FinishReason.STOP)
    assert [step.new_logprobs.logprob_token_ids.tolist() for step in (first, last)] == [[[1]], [[2]]]
