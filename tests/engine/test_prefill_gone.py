"""A prefill pod that hangs, dies, or is asked too late: its KV is never taken for what it may no longer be."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.engine.conftest import Task
from tests.engine.legs import Answer, Json, completion, metric, post, post_stream
from tests.engine.test_ends import all_kv_free, within
from tests.engine.test_exact import assert_exact, expected, tokens

from sunfleet_worker.lease import DEADLINE_SECONDS, LEASE_SECONDS, MARGIN_SECONDS
from support.engines import Engine
from support.reference import Reference

PATH = "/v1/completions"
GIVEN_UP = (503, "sun_kv_load_failed")
# What a busy machine may add.
SLACK_SECONDS = 8


@pytest.fixture
def prefill(full_task: Task) -> Iterator[Engine]:
    """The full task's prefill pod, which runs again afterwards."""
    engine = full_task.pair.prefill
    yield engine
    assert engine.process is not None
    if engine.process.poll() is not None:
        engine.start()
        engine.wait_ready()


def handed_over(task: Task, body: Json) -> Json:
    return task.pair.second_leg(body, task.pair.first_leg(PATH, body))


def outcome(answer: Answer) -> tuple[int, object]:
    return answer.status, answer.body.get("error", {}).get("code")


def assert_answers(task: Task, reference: Reference, rng: random.Random) -> None:
    prompt = tokens(rng, 50)
    assert_exact(task.pair.complete(prompt, 8, ignore_eos=True), expected(reference, task, prompt, 8), "afterwards")


def test_kv_of_a_prefill_that_hangs_is_given_up_in_time_and_never_used_later(
    full_task: Task, prefill: Engine, reference: Reference, rng: random.Random
) -> None:
    assert_answers(full_task, reference, rng)  # the engines have met
    plain = handed_over(full_task, completion(tokens(rng, 90), 8))
    streamed = handed_over(full_task, completion(tokens(rng, 90), 8, stream=True))
    prefill.freeze()
    began = time.monotonic()
    try:
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(post_stream, full_task.pair.decode, PATH, streamed)
            answer = post(full_task.pair.decode, PATH, plain)
            stream = waiting.result()
        waited = time.monotonic() - began
    finally:
        prefill.thaw()
    assert outcome(answer) == GIVEN_UP
    assert (stream.status, stream.events[0]["error"]["code"]) == GIVEN_UP
    assert DEADLINE_SECONDS - 1 < waited < DEADLINE_SECONDS + SLACK_SECONDS
    assert within(LEASE_SECONDS, lambda: all_kv_free(prefill, full_task.pair.decode))
    assert_answers(full_task, reference, rng)


def test_a_hand_over_that_comes_near_or_after_the_end_of_its_lease_is_not_used(
    full_task: Task, prefill: Engine, reference: Reference, rng: random.Random
) -> None:
    """Asked at once it is exact; later than the lease allows it is refused, though the blocks may still be there."""
    assert_answers(full_task, reference, rng)
    prompts = [tokens(rng, 60) for _ in range(3)]
    legs = [handed_over(full_task, completion(prompt, 6, ignore_eos=True)) for prompt in prompts]
    for leg in legs:
        leg["return_token_ids"] = True
    began, answers = time.monotonic(), []
    for leg, age in zip(legs, (1, LEASE_SECONDS - MARGIN_SECONDS + 1, LEASE_SECONDS + 4), strict=True):
        time.sleep(max(0.0, began + age - time.monotonic()))
        answers.append(post(full_task.pair.decode, PATH, leg))
    assert_exact(answers[0], expected(reference, full_task, prompts[0], 6), "asked in time")
    assert [outcome(answer) for answer in answers[1:]] == [GIVEN_UP] * 2
    assert within(10, lambda: all_kv_free(prefill, full_task.pair.decode))
    assert_answers(full_task, reference, rng)


def test_a_prefill_that_dies_before_or_during_the_transfer_leaves_nothing_behind(
    full_task: Task, prefill: Engine, reference: Reference, rng: random.Random
) -> None:
    assert_answers(full_task, reference, rng)
    decode = full_task.pair.decode
    prompts = [tokens(rng, 300) for _ in range(8)]
    legs = [handed_over(full_task, completion(prompt, 8, ignore_eos=True)) for prompt in prompts]
    with ThreadPoolExecutor(8) as pool:
        during = [pool.submit(post, decode, PATH, leg) for leg in legs[:6]]
        time.sleep(0.02)
        prefill.kill()
        before = [post(decode, PATH, leg) for leg in legs[6:]]
        answers = [future.result() for future in during]
    assert [outcome(answer) for answer in before] == [GIVEN_UP] * 2
    for prompt, answer in zip(prompts, answers, strict=False):
        if answer.status == 200:
            assert_exact(answer, expected(reference, full_task, prompt, 8), "read before the end")
        else:
            assert outcome(answer) == GIVEN_UP
    assert within(DEADLINE_SECONDS, lambda: all_kv_free(decode))
    assert metric(decode, "sunfleet_decode_computed_prompt_tokens_total") == 0
    prefill.start()
    prefill.wait_ready()
    assert_answers(full_task, reference, rng)
