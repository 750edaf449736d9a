"""A stream that breaks off anywhere and goes on elsewhere is, to its client, the stream that never broke."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.unit.worker.api_process import EOS, Answering, Written, encode, seen
from vllm.v1.engine import FinishReason

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
USAGE = {"stream_options": {"include_usage": True}}
CALL = 'Well.<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": "x"}}\n</tool_call>'

CASES = {
    "text": Answering(encode("Grüße 🙂, 你好. End"), USAGE),
    "text that ends with EOS": Answering([*encode("Yes."), EOS], USAGE, finish=FinishReason.STOP),
    "log-probabilities of chosen tokens": Answering(encode("Grüße 🙂"), {"logprobs": True}),
    "log-probabilities with alternatives": Answering(encode("Grüße 🙂"), {"logprobs": True, "top_logprobs": 3}),
    "stop string": Answering(encode("one two three STOP four"), {"stop": ["xy", " STOP"], **USAGE}),
    "stop string that is shown": Answering(
        encode("one STOP four"), {"stop": "STOP", "include_stop_str_in_output": True}
    ),
    "almost a stop string": Answering(encode("one STO STO"), {"stop": ["STOP"]}),
    "completion": Answering(encode("Grüße 🙂"), USAGE, kind="completion"),
    "completion with log-probabilities": Answering(encode("Grüße 🙂"), {"logprobs": 2, **USAGE}, kind="completion"),
    "completion with a stop string": Answering(encode("a b c"), {"stop": [" b"], "logprobs": 0}, kind="completion"),
    "tool call": Answering(
        encode(CALL), {"tools": TOOLS, **USAGE}, parsers={"tool_parser_name": "hermes"}, finish=FinishReason.STOP
    ),
    "tool call with log-probabilities": Answering(
        encode(CALL), {"tools": TOOLS, "logprobs": True}, parsers={"tool_parser_name": "hermes"}
    ),
    "required tool": Answering(
        encode('[{"name": "add", "parameters": {"a": 1}}]'),
        {"tools": TOOLS, "tool_choice": "required"},
        parsers={"tool_parser_name": "hermes"},
    ),
    "reasoning": Answering(
        encode("<think>So, 2.</think>It is 2."), USAGE, parsers={"reasoning_parser_name": "deepseek_r1"}
    ),
    "reasoning that is not asked for": Answering(
        encode("<think>So, 2.</think>It is 2."),
        {"include_reasoning": False},
        parsers={"reasoning_parser_name": "deepseek_r1"},
    ),
    "reasoning, then a tool call": Answering(
        encode("<think>Add.</think>" + CALL),
        {"tools": TOOLS},
        parsers={"reasoning_parser_name": "qwen3", "tool_parser_name": "hermes"},
        finish=FinishReason.STOP,
    ),
}


@pytest.fixture(params=list(CASES.values()), ids=list(CASES))
def answering(request: pytest.FixtureRequest) -> Answering:
    answering: Answering = request.param
    return answering


async def resumed(answering: Answering, before: list[Written], ready: int) -> Written:
    """The stream's next pod, after what its pods ``before`` have written."""
    told = sum(written.count for written in before)
    rows: Any = {key: [row for w in before for row in w.rows()[key]] for key in ("token_ids", "logprobs", "ranks")}
    if not told:
        rows = (await answering.stream()).told[1 if answering.kind == "chat" else 0].logprobs  # as the prefill gives it
    return await answering.stream(seed=max(told, 1), told=told, rows=rows, ready=ready)


def broken(written: Written, after: int) -> Written:
    return Written(written.events[:after], written.told[:after])


def before_usage(written: Written) -> int:
    """How many events come before the usage, after which nothing but ``[DONE]`` is missing."""
    return next(index for index, event in enumerate(written.events) if '"choices":[]' in event or "[DONE]" in event)


@pytest.mark.parametrize("ready", [1, 3])
async def test_a_stream_that_broke_off_after_any_event_goes_on_where_it_was(answering: Answering, ready: int) -> None:
    whole = await answering.stream(progress=False)
    expected = seen(whole.events)
    assert (len(expected.finish), expected.done) == (1, 1)
    first = await answering.stream(ready=ready)
    for cut in range(1, before_usage(first) + 1):
        begun = broken(first, cut)
        rest = await resumed(answering, [begun], ready)
        assert seen(begun.events + rest.events) == expected, f"cut after event {cut}: {begun.events[-1]}"


async def test_a_stream_that_breaks_off_twice_is_still_whole(answering: Answering) -> None:
    expected = seen((await answering.stream(progress=False)).events)
    rng = random.Random(7)  # noqa: S311 - test data
    for _ in range(10):
        first = await answering.stream(ready=rng.randrange(1, 4))
        first = broken(first, rng.randrange(1, before_usage(first) + 1))
        second = await resumed(answering, [first], rng.randrange(1, 4))
        second = broken(second, rng.randrange(before_usage(second) + 1))
        third = await resumed(answering, [first, second], rng.randrange(1, 4))
        assert seen(first.events + second.events + third.events) == expected


@pytest.mark.parametrize("ready", [1, 2, 100])
async def test_all_tokens_of_a_whole_stream_are_told_once_and_in_order(answering: Answering, ready: int) -> None:
    written = await answering.stream(ready=ready)
    told = [token for progress in written.told for token in progress.token_ids]
    assert told == answering.ids[: len(told)]
    *_, usage = [*seen(written.events).usage, {"completion_tokens": len(told)}]
    assert usage["completion_tokens"] == len(told)


async def test_every_chunk_has_the_time_at_which_the_stream_was_created() -> None:
    rest = await resumed(CASES["text"], [broken(await CASES["text"].stream(), 3)], 1)
    assert all('"created":1234,' in event for event in rest.events[:-1])
    assert rest.events[-1] == "data: [DONE]\n\n"


async def test_a_told_answer_is_followed_by_its_usage_only() -> None:
    for name in ("text", "text that ends with EOS"):
        first = await CASES[name].stream()
        rest = await resumed(CASES[name], [broken(first, len(first.events) - 2)], 1)
        assert [bool(seen([event]).usage) for event in rest.events] == [True, False]


async def test_who_does_not_ask_is_told_nothing(answering: Answering) -> None:
    written = await answering.stream(progress=False)
    assert not any(progress.token_ids for progress in written.told)
    assert all(event.startswith("data: ") for event in written.events)


async def test_an_answer_that_its_seed_ends_is_told_if_it_was_not() -> None:
    one: Any = Answering([EOS], USAGE, finish=FinishReason.STOP)
    rest = await one.stream(seed=1, told=0)
    client = seen(rest.events)
    assert (client.roles, client.finish, client.done) == ([], [("stop", None)], 1)
