"""Tokens equal the reference: the task's module over the prompt, the frozen decoder afterwards."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.engine.conftest import Task
from tests.engine.legs import Answer, completion, metric, post

from support.engines import BLOCK, STEP_TOKENS, Engine
from support.exact import compare
from support.reference import Expected, Reference

SOURCES = "vllm:prompt_tokens_by_source_total"


def tokens(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(100, 40_000) for _ in range(count)]


def expected(reference: Reference, task: Task, prompt: list[int], max_tokens: int, **sampling: object) -> Expected:
    return reference.answer(task.module, prompt, max_tokens=max_tokens, ignore_eos=True, **sampling)


def assert_exact(answer: Answer, wanted: Expected, what: str) -> None:
    verdict = compare(answer.token_ids, wanted)
    assert verdict.exact, f"{what}: {verdict.explanation}"


LENGTHS = [1, 2, *(k * BLOCK + d for k in (1, 2, 3, 4) for d in (-1, 0, 1)), STEP_TOKENS, 2 * STEP_TOKENS + 1]


@pytest.mark.parametrize("length", LENGTHS)
def test_cold_and_repeated_prompts_are_exact(task: Task, reference: Reference, rng: random.Random, length: int) -> None:
    prompt = tokens(rng, length)
    wanted = expected(reference, task, prompt, 12)
    for turn in ("cold", "repeated"):
        assert_exact(task.pair.complete(prompt, 12, ignore_eos=True), wanted, f"{length} tokens, {turn}")


def test_two_tasks_in_turn_do_not_see_each_others_cache(
    lora_task: Task, full_task: Task, reference: Reference, rng: random.Random
) -> None:
    prompt = tokens(rng, 3 * BLOCK + 5)
    for turn in range(2):
        for task in (lora_task, full_task):
            wanted = expected(reference, task, prompt, 10)
            assert_exact(task.pair.complete(prompt, 10, ignore_eos=True), wanted, f"turn {turn}")


def test_many_tasks_in_one_decode_batch_are_exact(
    lora_task: Task, full_task: Task, reference: Reference, rng: random.Random
) -> None:
    asked = [(task, tokens(rng, rng.randrange(1, 100))) for task in (lora_task, full_task) for _ in range(4)]
    with ThreadPoolExecutor(len(asked)) as pool:
        answers = list(pool.map(lambda case: case[0].pair.complete(case[1], 24, ignore_eos=True), asked))
    for (task, prompt), answer in zip(asked, answers, strict=True):
        assert_exact(answer, expected(reference, task, prompt, 24), f"{len(prompt)} tokens in a batch")


def test_the_second_turn_of_a_chat_takes_the_first_answers_kv_from_the_prefill(
    task: Task, reference: Reference, rng: random.Random
) -> None:
    prompt = tokens(rng, 40)
    first = task.pair.complete(prompt, 2 * BLOCK, ignore_eos=True)
    again = prompt + first.token_ids + tokens(rng, 8)
    for turn in ("cold", "repeated"):
        wanted = expected(reference, task, again, 10)
        assert_exact(task.pair.complete(again, 10, ignore_eos=True), wanted, f"second turn, {turn}")


@pytest.mark.parametrize(
    "penalties",
    [
        {"repetition_penalty": 1.5},
        {"presence_penalty": 1.5, "frequency_penalty": 0.7},
        {"repetition_penalty": 1.3, "presence_penalty": 0.5},
    ],
    ids=str,
)
def test_penalties_count_the_first_token_as_output(
    lora_task: Task, reference: Reference, rng: random.Random, penalties: dict[str, float]
) -> None:
    prompt = tokens(rng, 50)
    wanted = expected(reference, lora_task, prompt, 20, **penalties)
    assert_exact(lora_task.pair.complete(prompt, 20, ignore_eos=True, **penalties), wanted, str(penalties))


@pytest.mark.parametrize("max_tokens", [1, 2])
def test_shortest_answers(task: Task, reference: Reference, rng: random.Random, max_tokens: int) -> None:
    prompt = tokens(rng, BLOCK)
    answer = task.pair.complete(prompt, max_tokens, ignore_eos=True)
    assert_exact(answer, expected(reference, task, prompt, max_tokens), f"max_tokens={max_tokens}")
    assert answer.choice["finish_reason"] == "length"
    assert answer.body["usage"]["completion_tokens"] == max_tokens


def test_a_first_token_that_stops_the_answer_needs_no_decoding(task: Task, rng: random.Random) -> None:
    prompt = tokens(rng, BLOCK + 3)
    first = task.pair.complete(prompt, 1, ignore_eos=True).token_ids
    body = completion(prompt, 8, ignore_eos=True, stop_token_ids=first)
    answer = task.pair.first_leg("/v1/completions", body)
    assert answer.ended, "and hands nothing over"
    assert answer.token_ids == first
    assert (answer.choice["finish_reason"], answer.choice["stop_reason"]) == ("stop", first[0])


def test_tokens_handed_over_by_an_earlier_decode_pod_are_continued(
    task: Task, reference: Reference, rng: random.Random
) -> None:
    for length, done in ((BLOCK - 1, 2), (2 * BLOCK, BLOCK), (2 * BLOCK + 1, 2 * BLOCK + 6)):
        prompt = tokens(rng, length)
        wanted = expected(reference, task, prompt, done + 10)
        body = {"prompt": prompt, "max_tokens": done + 10, "temperature": 0, "ignore_eos": True}
        prefilled = task.pair.first_leg("/v1/completions", body)
        prefilled.choice["token_ids"] = wanted.token_ids[:done]

        answer = post(task.pair.decode, "/v1/completions", task.pair.second_leg(body, prefilled))
        assert_exact(answer, wanted, f"{length} tokens resumed after {done}")


def test_the_decoder_computed_no_prompt_token_itself(
    engines: dict[str, Engine], lora_task: Task, rng: random.Random
) -> None:
    decode = engines["decode"]

    def counted() -> dict[str, float]:
        return {
            source: metric(decode, SOURCES, source=source)
            for source in ("local_compute", "local_cache_hit", "external_kv_transfer")
        }

    before = counted()
    prompt = tokens(rng, 3 * BLOCK + 7)
    for _ in range(2):
        lora_task.pair.complete(prompt, 4, ignore_eos=True)
    grown = {source: value - before[source] for source, value in counted().items()}
    cached = 3 * BLOCK  # the second time, whole blocks of the prompt are there already
    assert grown == {
        "local_compute": 0,
        "local_cache_hit": cached,
        "external_kv_transfer": 2 * len(prompt) - cached,
    }
    assert counted()["local_compute"] == 0, "not one prompt token since the pod started"
