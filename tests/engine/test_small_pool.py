"""A decode pod with too small a pool, and a pod's own end. The last file of the suite: it takes an engine away."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.engine.conftest import Task
from tests.engine.legs import Pair, Stream, completion, metric, post, post_stream
from tests.engine.streaming import Streaming
from tests.engine.test_ends import all_kv_free, within
from tests.engine.test_exact import expected, tokens
from tests.engine.test_resume import question

from sunfleet_cluster.state import StateFolder
from support.engines import Engine, Engines, get_status
from support.exact import compare
from support.reference import Reference

PATH = "/v1/completions"


@pytest.fixture(scope="module")
def small_decode(
    engines: dict[str, Engine], state: StateFolder, engine_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """A decode pod whose pool holds less than the test asks for; takes the full task's place in memory."""
    engines["full"].stop()
    folder = tmp_path_factory.mktemp("small")
    blocks = {"num-gpu-blocks-override": "14", "max-num-seqs": "8"}
    # Its drain is long enough for the last test's stream on a machine that is busy with something else.
    engine = Engine(
        "small", "decode", state.models / "base", folder, engine_python, extra_args=blocks, drain_seconds=180
    )
    engine.max_model_len = 400
    running = Engines()
    try:
        running.start(engine)
        yield engine
    finally:
        running.close()


MOST_LEGS = 200  # a livelock would need more


@pytest.mark.parametrize("logprobs", [None, 1])
def test_a_preempted_request_ends_with_its_reason_and_can_be_resumed(
    lora_task: Task, small_decode: Engine, reference: Reference, rng: random.Random, logprobs: int | None
) -> None:
    """Two of six fit, so they are resumed again and again. Who came last is preempted: the oldest gets to its end."""
    pair = Pair(lora_task.pair.prefill, small_decode, "c" * 32)
    prompts = [question(rng, 60 + i) for i in range(6)]
    streams = [Streaming(pair, PATH, completion(p, 70, ignore_eos=True, logprobs=logprobs)) for p in prompts]
    reasons: list[object] = []

    def run(streaming: Streaming) -> None:
        while not streaming.done and len(reasons) < MOST_LEGS:
            streaming.leg()
            reasons.extend([streaming.error["code"]] if streaming.error else [])

    with ThreadPoolExecutor(len(streams)) as pool:
        list(pool.map(run, streams))
    assert "sun_preempted" in reasons, "the pool was large enough; the test shows nothing"
    assert set(reasons) <= {"sun_preempted", "sun_kv_load_failed"}, "the latter: waited too long for room"
    for prompt, streaming in zip(prompts, streams, strict=True):
        wanted = expected(reference, lora_task, prompt, 70)
        verdict = compare(streaming.told, wanted)
        assert streaming.done
        assert verdict.exact, f"after {streaming.legs} legs: {verdict.explanation}"
        assert streaming.stream.text == wanted.text
    print(f"{len(reasons)} preemptions, legs: {[streaming.legs for streaming in streams]}")
    assert metric(small_decode, "sunfleet_decode_computed_prompt_tokens_total") == 0
    assert metric(small_decode, "sunfleet_worker_ended_requests_total", code="sun_preempted") > 0
    assert within(10, lambda: all_kv_free(pair.prefill, small_decode))


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
    assert within(60, lambda: metric(small_decode, "vllm:num_requests_running") > 0)
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
