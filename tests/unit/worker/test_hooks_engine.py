"""The hooks inside the engine, on the engine's own objects and without a model."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.unit.worker.test_handover import complete
from vllm.sampling_params import SamplingParams
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.engine import FinishReason
from vllm.v1.outputs import LogprobsLists
from vllm.v1.request import Request, RequestStatus
from vllm.v1.worker.gpu_input_batch import InputBatch

from sunfleet_worker.handover import KEY_OUTPUT_LOGPROBS
from sunfleet_worker.hooks.guard import install_guard
from sunfleet_worker.hooks.input_batch import patch_input_batch
from sunfleet_worker.hooks.isolate import isolate_generated_blocks
from sunfleet_worker.hooks.seed import finished_by_seed, logprobs_to_wire, plant_seed, seed_output

BLOCK = 4
EOS = 2


def sha256(value: Any) -> bytes:
    return hashlib.sha256(repr(value).encode()).digest()


init_none_hash(sha256)


def handed_over(prompt: list[int], seed: list[int], **sampling: Any) -> Request:
    params = complete(sun_output_token_ids=seed)
    params.update(sampling.pop("params", {}))
    given = SamplingParams(max_tokens=8, extra_args={"kv_transfer_params": params}, **sampling)
    given.update_from_generation_config({}, EOS)
    return Request(
        request_id=f"r{prompt}",
        prompt_token_ids=prompt,
        sampling_params=given,
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK, sha256),
    )


def test_the_seed_counts_as_output() -> None:
    request = handed_over([1, 3, 4], [7, 8])
    assert plant_seed(request) == [7, 8]
    assert (request.num_prompt_tokens, request.num_output_tokens, request.num_tokens) == (3, 2, 5)
    assert list(request.all_token_ids) == [1, 3, 4, 7, 8]


@pytest.mark.parametrize(
    ("seed", "sampling", "status"),
    [
        ([7], {}, None),
        ([7, EOS], {}, RequestStatus.FINISHED_STOPPED),
        ([7, 9], {"stop_token_ids": [9]}, RequestStatus.FINISHED_STOPPED),
        ([7] * 8, {}, RequestStatus.FINISHED_LENGTH_CAPPED),
        ([7, EOS], {"ignore_eos": True}, None),
        ([], {}, None),
    ],
)
def test_a_seed_may_be_the_whole_answer(
    seed: list[int], sampling: dict[str, Any], status: RequestStatus | None
) -> None:
    request = handed_over([1, 3], seed, **sampling)
    plant_seed(request)
    assert finished_by_seed(request, max_model_len=100) == status
    assert request.status == RequestStatus.WAITING


def test_the_seed_is_reported_with_its_log_probabilities() -> None:
    lists = LogprobsLists(np.array([[7, 9]]), np.array([[-0.1, -2.3]], dtype=np.float32), np.array([1]))
    request = handed_over([1, 3], [7], logprobs=1, params={KEY_OUTPUT_LOGPROBS: logprobs_to_wire(lists)})
    plant_seed(request)
    output = seed_output(request, finish=FinishReason.LENGTH)
    assert (output.new_token_ids, output.finish_reason) == ([7], FinishReason.LENGTH)
    assert output.new_logprobs is not None
    for given, sent in zip(output.new_logprobs[:3], lists[:3], strict=True):
        assert np.array_equal(given, sent)


def hashes(prompt: list[int], output: list[int], *, isolated: bool) -> list[bytes]:
    request = handed_over(prompt, [])
    if isolated:
        isolate_generated_blocks(request, BLOCK)
    for token in output:
        request.append_output_token_ids(token)
    return [bytes(value) for value in request.block_hashes]


def test_blocks_of_prompt_positions_keep_their_keys() -> None:
    prompt = list(range(10, 10 + 2 * BLOCK + 1))
    assert hashes(prompt, [1] * 9, isolated=True)[:2] == hashes(prompt, [], isolated=False)


def test_a_block_with_a_generated_position_matches_nobody() -> None:
    prompt, output = list(range(10, 10 + BLOCK + 1)), list(range(50, 50 + 2 * BLOCK))
    ordinary = hashes(prompt, output, isolated=False)
    one, two = hashes(prompt, output, isolated=True), hashes(prompt, output, isolated=True)
    next_turn = hashes(prompt + output, [], isolated=True)
    assert len(one) == len(two) == len(ordinary) == len(next_turn)
    assert next_turn == ordinary, "as prompt, the same tokens are ordinary"
    for keys in (two, ordinary):
        assert not {*one[1:]} & {*keys[1:]}


class Manager:
    """Stands for the KV cache manager; grants everything."""

    def allocate_slots(self, request: Request, num_new_tokens: int, **rest: Any) -> str:
        return "slots"


@pytest.mark.parametrize(
    ("computed", "local", "external", "running", "granted"),
    [
        (0, 0, 6, False, True),  # all remote
        (0, 4, 2, False, True),  # some in the local prefix cache
        (6, 0, 0, False, True),  # loaded, now to be started
        (0, 0, 5, False, False),  # the last token would be computed here
        (0, 4, 0, False, False),  # nothing remote
        (5, 0, 0, False, False),  # loaded, but a block was lost
        (9, 0, 0, True, True),  # decoding
    ],
)
def test_the_guard_grants_slots_only_from_the_prompts_end(
    computed: int, local: int, external: int, running: bool, granted: bool
) -> None:
    manager: Any = Manager()
    ended: list[str] = []
    install_guard(manager, lambda request: ended.append(request.request_id))
    request = handed_over([1] * 6, [7])
    plant_seed(request)
    request.num_computed_tokens = computed
    request.status = RequestStatus.RUNNING if running else RequestStatus.WAITING
    slots = manager.allocate_slots(request, 1, num_new_computed_tokens=local, num_external_computed_tokens=external)
    assert slots == ("slots" if granted else None)
    assert ended == ([] if granted else [request.request_id])


def test_the_model_runners_batch_gets_the_seed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[list[int]] = []

    def stock(self: object, request: Any) -> int:
        taken.append(list(request.output_token_ids))
        return 3

    monkeypatch.setattr(InputBatch, "add_request", stock)
    patch_input_batch()
    patch_input_batch()
    request = handed_over([1, 3], [7, 8])
    state = SimpleNamespace(sampling_params=request.sampling_params, output_token_ids=[])
    batch: Any = InputBatch
    assert batch.add_request(None, state) == 3
    assert batch.add_request(None, state) == 3
    assert taken == [[7, 8], [7, 8]]
