"""What a client of the OpenAI API sees: text, usage, finish reason, log-probabilities, chunks."""

from __future__ import annotations

import random
import re

import pytest
from tests.engine.conftest import Task
from tests.engine.legs import RESPONSE_MODEL, Stream, chat, completion, post
from tests.engine.test_exact import expected, tokens

from support.engines import BLOCK
from support.reference import Expected, Reference

QUESTION = [{"role": "user", "content": "What is the capital of France? Answer in one short sentence."}]
# The engine's float32 rounds differently from the reference's.
LOGPROB_TOLERANCE = 1e-3


def asked(reference: Reference, task: Task, max_tokens: int) -> Expected:
    return reference.answer(task.module, QUESTION, max_tokens=max_tokens)


@pytest.mark.parametrize("max_tokens", [1, 2, 6, 60])
def test_a_chat_has_the_references_text_usage_and_finish_reason(
    task: Task, reference: Reference, max_tokens: int
) -> None:
    wanted = asked(reference, task, max_tokens)
    answer = task.pair.ask("/v1/chat/completions", chat(QUESTION, max_tokens))
    assert answer.token_ids == wanted.token_ids
    assert answer.text == wanted.text
    assert answer.choice["finish_reason"] == wanted.finish_reason
    assert answer.body["model"] == RESPONSE_MODEL
    usage = answer.body["usage"]
    assert usage["prompt_tokens"] == len(wanted.prompt_token_ids)
    assert usage["completion_tokens"] == len(wanted.token_ids)
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


@pytest.mark.parametrize("max_tokens", [1, 2, 60])
def test_a_streamed_chat_says_the_same(task: Task, reference: Reference, max_tokens: int) -> None:
    wanted = asked(reference, task, max_tokens)
    body = chat(QUESTION, max_tokens, stream_options={"include_usage": True})
    stream = task.pair.stream("/v1/chat/completions", body)
    assert stream.done
    assert stream.text == wanted.text
    assert stream.finish_reason == wanted.finish_reason
    assert {event["model"] for event in stream.events} == {RESPONSE_MODEL}
    assert stream.events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert stream.events[-1]["usage"]["completion_tokens"] == len(wanted.token_ids)


def test_the_first_token_comes_in_a_chunk_of_its_own(lora_task: Task, reference: Reference, rng: random.Random) -> None:
    prompt = tokens(rng, 40)
    body = completion(prompt, 8, ignore_eos=True, logprobs=0)
    stream = lora_task.pair.stream("/v1/completions", body)
    counts = [len(c["logprobs"]["tokens"]) for event in stream.events for c in event["choices"] if c["logprobs"]]
    assert counts[0] == 1
    assert sum(counts) == 8


def test_a_completion_of_text_streams_the_text(task: Task, reference: Reference) -> None:
    wanted = reference.answer(task.module, "The quick brown fox", max_tokens=12, ignore_eos=True)
    body = completion("The quick brown fox", 12, ignore_eos=True)
    assert task.pair.ask("/v1/completions", body).text == wanted.text
    stream: Stream = task.pair.stream("/v1/completions", body)
    assert (stream.text, stream.done, stream.finish_reason) == (wanted.text, True, "length")


def test_log_probabilities_of_all_tokens_are_the_references(
    task: Task, reference: Reference, rng: random.Random
) -> None:
    prompt = tokens(rng, 45)
    wanted = expected(reference, task, prompt, 6)
    given = task.pair.complete(prompt, 6, ignore_eos=True, logprobs=2).choice["logprobs"]
    assert given["token_logprobs"] == pytest.approx(wanted.logprobs, abs=LOGPROB_TOLERANCE)
    assert [len(top) for top in given["top_logprobs"]] == [2] * 6


def test_a_chats_log_probabilities_cover_the_first_token(task: Task, reference: Reference) -> None:
    wanted = asked(reference, task, 4)
    body = chat(QUESTION, 4, logprobs=True, top_logprobs=3)
    content = task.pair.ask("/v1/chat/completions", body).choice["logprobs"]["content"]
    assert [entry["logprob"] for entry in content] == pytest.approx(wanted.logprobs, abs=LOGPROB_TOLERANCE)
    assert all(len(entry["top_logprobs"]) == 3 for entry in content)


def test_log_probabilities_without_the_prefills_share_are_refused(lora_task: Task) -> None:
    body = chat(QUESTION, 4, logprobs=True)
    pair = lora_task.pair
    prefilled = pair.first_leg("/v1/chat/completions", chat(QUESTION, 4))
    answer = post(pair.decode, "/v1/chat/completions", pair.second_leg(body, prefilled))
    assert (answer.status, answer.error["code"]) == (400, "handover_incomplete")


def test_stop_strings_end_the_answer_wherever_they_begin(task: Task, reference: Reference) -> None:
    wanted = reference.answer(task.module, "Once upon a time", max_tokens=20, ignore_eos=True)
    whole = wanted.text
    for start in (0, 1, len(whole) // 2):
        stop = whole[start : start + 3]
        body = completion("Once upon a time", 20, ignore_eos=True, stop=[stop])
        answer = task.pair.ask("/v1/completions", body)
        assert answer.text == whole[: whole.index(stop)], f"stop {stop!r}"
        assert (answer.choice["finish_reason"], answer.choice["stop_reason"]) == ("stop", stop)
        assert task.pair.stream("/v1/completions", body).text == answer.text


def test_min_tokens_counts_the_first_token(task: Task, reference: Reference) -> None:
    for min_tokens in (1, 2, 5):
        wanted = reference.answer(task.module, QUESTION, max_tokens=16, min_tokens=min_tokens)
        answer = task.pair.ask("/v1/chat/completions", chat(QUESTION, 16, min_tokens=min_tokens))
        assert answer.token_ids == wanted.token_ids


def test_a_grammar_goes_on_where_the_first_token_left_it(task: Task, rng: random.Random) -> None:
    body = completion(tokens(rng, BLOCK), 24, structured_outputs={"regex": "[0-9]{8}x"})
    answer = task.pair.ask("/v1/completions", body)
    assert re.fullmatch("[0-9]{8}x", answer.text)
    assert answer.choice["finish_reason"] == "stop"


def test_cached_tokens_are_the_prefills(lora_task: Task, rng: random.Random) -> None:
    prompt = tokens(rng, 2 * BLOCK + 1)
    cached = [
        lora_task.pair.complete(prompt, 2, ignore_eos=True).body["usage"]["prompt_tokens_details"]["cached_tokens"]
        for _ in range(2)
    ]
    assert cached == [0, 2 * BLOCK]
