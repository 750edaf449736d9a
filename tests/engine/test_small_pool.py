"""A decode pod with too small a pool, and a pod's own end. The last file of the suite: it takes an engine away."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.conftest import Task
from tests.engine.legs import Answer, Pair, Stream, completion, metric, post, post_stream
from tests.engine.test_ends import within
from tests.engine.test_exact import assert_exact, expected, tokens

from sunfleet_cluster.state import StateFolder
from support.engines import Engine, Engines, get_status
from support.reference import Reference


@pytest.fixture(scope="module")
def small_decode(
    engines: dict[str, Engine], state: StateFolder, engine_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """A decode pod whose pool holds less than the test asks for; takes the full task's place in memory."""
    engines["full"].stop()
    folder = tmp_path_factory.mktemp("small")
    blocks = {"num-gpu-blocks-override": "14", "max-num-seqs": "8"}
    engine = Engine("small", "decode", state.models / "base", folder, engine_python, extra_args=blocks)
    engine.max_model_len = 400
    running = Engines()
    try:
        running.start(engine)
        yield engine
    finally:
        running.close()


def test_a_preempted_request_ends_with_its_reason_and_can_be_resumed(
    lora_task: Task, small_decode: Engine, reference: Reference, rng: random.Random
) -> None:
    pair = Pair(lora_task.pair.prefill, small_decode, "c" * 32)
    prompts = [tokens(rng, 60 + i) for i in range(6)]
    streams: dict[int, Stream] = {}

    def ask(index: int) -> None:
        body = completion(prompts[index], 70, ignore_eos=True, stream=True, logprobs=0, return_tokens_as_token_ids=True)
        streams[index] = post_stream(
            small_decode, "/v1/completions", pair.second_leg(body, pair.first_leg("/v1/completions", body))
        )

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    preempted = [index for index, stream in streams.items() if not stream.done]
    assert preempted, "the pool was large enough; the test shows nothing"
    for index, prompt in enumerate(prompts):
        wanted, stream = expected(reference, lora_task, prompt, 70), streams[index]
        sent = _token_ids(stream)
        assert sent == wanted.token_ids[: len(sent)], "what was sent before the end is exact"
        if index in preempted:
            assert (stream.status, _code(stream)) in {(200, "sun_preempted"), (503, "sun_preempted")}
            assert_exact(_resume(pair, prompt, sent), wanted, f"resumed after {len(sent)} tokens")
    assert metric(small_decode, "vllm:prompt_tokens_by_source_total", source="local_compute") == 0


def _token_ids(stream: Stream) -> list[int]:
    names = [n for e in stream.events for c in e.get("choices", ()) if c["logprobs"] for n in c["logprobs"]["tokens"]]
    return [int(name.removeprefix("token_id:")) for name in names]


def _code(stream: Stream) -> str:
    code: str = stream.events[-1]["error"]["code"]
    return code


def _resume(pair: Pair, prompt: list[int], sent: list[int]) -> Answer:
    body = completion(prompt, 70, ignore_eos=True)
    prefilled = pair.first_leg("/v1/completions", body)
    prefilled.choice["token_ids"] = sent or prefilled.token_ids
    return post(pair.decode, "/v1/completions", pair.second_leg(body, prefilled))


def test_sigterm_lets_streams_finish_and_refuses_new_ones(
    lora_task: Task, small_decode: Engine, reference: Reference, rng: random.Random
) -> None:
    pair = Pair(lora_task.pair.prefill, small_decode, "d" * 32)
    prompt = tokens(rng, 40)
    body = completion(prompt, 150, ignore_eos=True, stream=True)
    running: list[Stream] = []
    leg = pair.second_leg(body, pair.first_leg("/v1/completions", body))
    late = pair.second_leg(body, pair.first_leg("/v1/completions", body))
    thread = threading.Thread(target=lambda: running.append(post_stream(small_decode, "/v1/completions", leg)))
    thread.start()
    assert within(20, lambda: metric(small_decode, "vllm:num_requests_running") > 0)
    small_decode.terminate()
    assert within(5, lambda: get_status(small_decode.url + "/sunfleet/readyz") == 503)
    assert get_status(small_decode.url + "/health") == 200, "alive while draining"
    refused = post(small_decode, "/v1/completions", late)
    assert (refused.status, refused.error["code"]) == (503, "sun_draining")
    thread.join()
    assert (running[0].done, running[0].finish_reason) == (True, "length")
    assert running[0].text == expected(reference, lora_task, prompt, 150).text
    assert small_decode.process is not None
    assert small_decode.process.wait(timeout=30) == 0
