"""A stream that breaks off on one decode pod and goes on on the same one or another: one unbroken exact answer."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from tests.engine.conftest import Task
from tests.engine.legs import RESPONSE_MODEL, Json, Pair, chat, completion, metric
from tests.engine.streaming import Streaming
from tests.engine.test_answers import LOGPROB_TOLERANCE, QUESTION
from tests.engine.test_exact import expected, tokens

from support.engines import BLOCK, Engine
from support.exact import compare
from support.reference import Expected, Reference

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
BREAKS = [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 100]
USAGE = {"stream_options": {"include_usage": True}}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add two numbers.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
                "additionalProperties": False,
            },
        },
    }
]


# The token of a full stop. After half a character the engine would begin the answer's text with the prompt's.
FULL_STOP = 30


def question(rng: random.Random, count: int) -> list[int]:
    """A prompt of random tokens whose answer's text is its own."""
    return [*tokens(rng, count - 1), FULL_STOP]


@pytest.fixture(params=["same", "other"])
def next_decode(request: pytest.FixtureRequest, engines: dict[str, Engine], other_decode: Engine) -> Engine:
    """The decode pod on which the stream goes on."""
    return engines["decode"] if request.param == "same" else other_decode


def broken(pair: Pair, path: str, body: Json, at: int, on: Engine) -> Streaming:
    """The stream of ``body`` that left its first decode pod after ``at`` tokens and ended on another."""
    streaming = Streaming(pair, path, body)
    streaming.leg(until=at)
    assert (len(streaming.told), streaming.done, streaming.error) == (at, False, None)
    streaming.leg(on)
    assert (streaming.done, streaming.error) == (True, None)
    return streaming


def unbroken(pair: Pair, path: str, body: Json) -> Streaming:
    streaming = Streaming(pair, path, body)
    streaming.leg()
    assert streaming.done, streaming.error
    return streaming


def assert_whole(streaming: Streaming, wanted: Expected) -> None:
    verdict = compare(streaming.told, wanted)
    assert verdict.exact, verdict.explanation
    stream = streaming.stream
    assert stream.text == wanted.text
    assert len({event["id"] for event in stream.events}) == 1
    assert len({event["created"] for event in stream.events}) == 1
    assert {event["model"] for event in stream.events} == {RESPONSE_MODEL}
    assert sum(bool(choice["finish_reason"]) for event in stream.events for choice in event["choices"]) == 1


@pytest.mark.parametrize("at", [pytest.param(1, marks=pytest.mark.brief), *BREAKS[1:5], pytest.param(100)])
def test_text_goes_on_after_any_number_of_tokens(
    lora_task: Task, next_decode: Engine, reference: Reference, rng: random.Random, at: int
) -> None:
    prompt = question(rng, 2 * BLOCK - 3)
    body = completion(prompt, at + 12, ignore_eos=True, **USAGE)
    streaming = broken(lora_task.pair, COMPLETIONS, body, at, next_decode)
    assert_whole(streaming, expected(reference, lora_task, prompt, at + 12))
    assert streaming.stream.finish_reason == "length"
    assert streaming.events[-1]["usage"]["completion_tokens"] == at + 12
    assert streaming.events[-1]["usage"]["prompt_tokens"] == len(prompt)


@pytest.mark.brief
def test_a_chat_that_breaks_off_three_times_is_still_the_references(
    full_task: Task, engines: dict[str, Engine], other_decode: Engine, reference: Reference
) -> None:
    wanted = reference.answer(full_task.module, QUESTION, max_tokens=40, ignore_eos=True)
    streaming = Streaming(full_task.pair, CHAT, chat(QUESTION, 40, ignore_eos=True, **USAGE))
    for decode, until in ((other_decode, 3), (engines["decode"], 4), (other_decode, 25), (engines["decode"], None)):
        streaming.leg(decode, until=until)
    assert_whole(streaming, wanted)
    assert [event["choices"][0]["delta"].get("role") for event in streaming.events[:-1]].count("assistant") == 1


def test_log_probabilities_go_on_without_a_gap_or_a_repeat(
    lora_task: Task, next_decode: Engine, reference: Reference, rng: random.Random
) -> None:
    prompt = question(rng, 45)
    wanted = expected(reference, lora_task, prompt, 16)
    streaming = broken(lora_task.pair, COMPLETIONS, completion(prompt, 16, ignore_eos=True, logprobs=2), 5, next_decode)
    assert_whole(streaming, wanted)
    given = [choice["logprobs"] for event in streaming.events for choice in event["choices"]]
    assert [value for part in given for value in part["token_logprobs"]] == pytest.approx(
        wanted.logprobs, abs=LOGPROB_TOLERANCE
    )
    assert [len(top) for part in given for top in part["top_logprobs"]] == [2] * 16
    names = [name for part in given for name in part["tokens"]]
    assert [at for part in given for at in part["text_offset"]] == [len("".join(names[:i])) for i in range(16)]


def test_a_chats_log_probabilities_go_on(full_task: Task, next_decode: Engine, reference: Reference) -> None:
    wanted = reference.answer(full_task.module, QUESTION, max_tokens=12, ignore_eos=True)
    body = chat(QUESTION, 12, ignore_eos=True, logprobs=True, top_logprobs=3)
    streaming = broken(full_task.pair, CHAT, body, 4, next_decode)
    entries = [
        entry
        for event in streaming.events
        for choice in event["choices"]
        if choice["logprobs"]
        for entry in choice["logprobs"]["content"]
    ]
    assert [entry["logprob"] for entry in entries] == pytest.approx(wanted.logprobs, abs=LOGPROB_TOLERANCE)
    assert all(len(entry["top_logprobs"]) == 3 for entry in entries)


def test_a_stop_string_is_found_across_the_break(lora_task: Task, next_decode: Engine, reference: Reference) -> None:
    prompt, at = "Once upon a time", 6
    whole = reference.answer(lora_task.module, prompt, max_tokens=24, ignore_eos=True).text
    seam = len(reference.answer(lora_task.module, prompt, max_tokens=at, ignore_eos=True).text)
    stop = whole[seam - 2 : seam + 3]
    streaming = broken(
        lora_task.pair, COMPLETIONS, completion(prompt, 24, ignore_eos=True, stop=[stop]), at, next_decode
    )
    assert streaming.stream.text == whole[: whole.index(stop)]
    last = streaming.events[-1]["choices"][0]
    assert (last["finish_reason"], last["stop_reason"]) == ("stop", stop)


@pytest.mark.parametrize(
    "sampling",
    [{"repetition_penalty": 1.3, "presence_penalty": 0.5}, {"frequency_penalty": 0.7}, {"min_tokens": 20}],
    ids=str,
)
def test_what_counts_output_tokens_counts_those_of_the_first_pod(
    lora_task: Task, next_decode: Engine, reference: Reference, rng: random.Random, sampling: dict[str, Any]
) -> None:
    prompt = question(rng, 50)
    ends = {"ignore_eos": "min_tokens" not in sampling}
    wanted = reference.answer(lora_task.module, prompt, max_tokens=24, **ends, **sampling)
    body = completion(prompt, 24, **ends, **sampling)
    assert_whole(broken(lora_task.pair, COMPLETIONS, body, 9, next_decode), wanted)


def test_a_grammar_goes_on_where_the_first_pod_left_it(
    lora_task: Task, next_decode: Engine, rng: random.Random
) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "array", "items": {"enum": [1, 2]}, "minItems": 9, "maxItems": 9}},
        "required": ["n"],
        "additionalProperties": False,
    }
    for structured in ({"regex": "[0-9]{12}x"}, {"json": schema}):
        body = completion(question(rng, BLOCK), 80, structured_outputs=structured)
        whole = unbroken(lora_task.pair, COMPLETIONS, body)
        streaming = broken(lora_task.pair, COMPLETIONS, body, 5, next_decode)
        assert (streaming.told, streaming.stream.text) == (whole.told, whole.stream.text)
        assert streaming.stream.finish_reason == "stop"
        text = streaming.stream.text
        assert re.fullmatch("[0-9]{12}x", text) if "regex" in structured else len(json.loads(text)["n"]) == 9


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "add"}}], ids=["any", "named"]
)
def test_a_tool_call_goes_on(full_task: Task, other_decode: Engine, choice: object) -> None:
    pair = Pair(full_task.pair.prefill, other_decode, full_task.pair.salt)
    body = chat([{"role": "user", "content": "What is 2 plus 3?"}], 120, tools=TOOLS, tool_choice=choice, **USAGE)
    whole = unbroken(pair, CHAT, body)
    name, arguments = called(whole)
    assert name == "add"
    assert isinstance(json.loads(arguments), dict)
    for at in cuts(whole):
        streaming = Streaming(pair, CHAT, body)
        streaming.leg(until=at)  # a token that shows nothing is told with the next one that does
        streaming.leg()
        assert (streaming.told, called(streaming)) == (whole.told, called(whole)), f"broken after {at}"
        assert streaming.stream.finish_reason == whole.stream.finish_reason
        assert streaming.events[-1]["usage"] == whole.events[-1]["usage"] | {
            "prompt_tokens_details": streaming.events[-1]["usage"]["prompt_tokens_details"]
        }


def cuts(whole: Streaming) -> range:
    """Some places at which a stream may break off, from its first token almost to its last."""
    return range(1, len(whole.told) - 1, len(whole.told) // 6)


def called(streaming: Streaming) -> tuple[str, str]:
    """Name and arguments of the one tool that a stream calls."""
    calls = [
        call["function"]
        for event in streaming.events
        for choice in event["choices"]
        for call in choice["delta"].get("tool_calls") or ()
    ]
    return "".join(call.get("name") or "" for call in calls), "".join(call.get("arguments") or "" for call in calls)


def test_reasoning_goes_on(full_task: Task) -> None:
    pair = full_task.pair
    form = "Here is my thought process: [a-z ]{12}\\. Here is my response: [0-9]{5}"
    body = chat(QUESTION, 80, structured_outputs={"regex": form})
    whole = unbroken(pair, CHAT, body)
    assert reasoned(whole)[0].strip()
    assert re.fullmatch("[0-9]{5}", reasoned(whole)[1].strip())
    for at in cuts(whole):
        streaming = Streaming(pair, CHAT, body)
        streaming.leg(until=at)
        streaming.leg()
        assert reasoned(streaming) == reasoned(whole), f"broken after {at}"


def reasoned(streaming: Streaming) -> tuple[str, str]:
    """Reasoning and content of a stream."""
    deltas = [choice["delta"] for event in streaming.events for choice in event["choices"]]
    return "".join(d.get("reasoning") or "" for d in deltas), "".join(d.get("content") or "" for d in deltas)


@pytest.mark.brief
def test_a_chat_of_five_turns_with_a_break_in_it_is_exact(
    lora_task: Task, other_decode: Engine, reference: Reference, rng: random.Random
) -> None:
    prompt = tokens(rng, 40)
    for turn in range(5):
        wanted = expected(reference, lora_task, prompt, BLOCK + turn)
        body = completion(prompt, BLOCK + turn, ignore_eos=True)
        if turn == 2:
            streaming = broken(lora_task.pair, COMPLETIONS, body, 17, other_decode)
        else:
            streaming = unbroken(lora_task.pair, COMPLETIONS, body)
        verdict = compare(streaming.told, wanted)
        assert verdict.exact, f"turn {turn}: {verdict.explanation}"
        prompt = [*prompt, *streaming.told, *tokens(rng, 9)]


def test_a_sampled_stream_goes_on_though_its_prefill_would_end_it(
    lora_task: Task, next_decode: Engine, rng: random.Random
) -> None:
    body = completion(tokens(rng, 40), 20, temperature=1.0, ignore_eos=True)
    streaming = Streaming(lora_task.pair, COMPLETIONS, body)
    streaming.leg(until=4)
    prefilled = lora_task.pair.first_leg(COMPLETIONS, completion(body["prompt"], 1, ignore_eos=True)).token_ids
    streaming.body = {**body, "stop_token_ids": prefilled, "temperature": 0}
    streaming.leg(next_decode)
    assert streaming.done, streaming.error
    assert len(streaming.told) == 20 or streaming.told[-1] in prefilled


def test_decoders_computed_no_prompt_token(engines: dict[str, Engine], other_decode: Engine) -> None:
    for decode in (engines["decode"], other_decode):
        assert metric(decode, "sunfleet_decode_computed_prompt_tokens_total") == 0
        assert metric(decode, "vllm:prompt_tokens_by_source_total", source="local_compute") == 0
    assert metric(other_decode, "sunfleet_worker_resumed_streams_total") > 0
