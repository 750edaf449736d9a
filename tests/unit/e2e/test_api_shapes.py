"""The comparing of other APIs' answers: a stream and a whole answer of the same text are equal, another text is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sunfleet_router.dialects import Answering
from sunfleet_router.dialects.messages import Messages
from sunfleet_router.dialects.responses import Responses
from support.apis import Said, of_message, of_response

USAGE = {"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9, "prompt_tokens_details": {"cached_tokens": 3}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}


def answering(dialect: Any) -> Answering:
    made: Answering = dialect.answering({"model": "m"}, {"model": "m"}, "r")
    return made


def whole(dialect: Any, text: str) -> Said:
    message = {"role": "assistant", "reasoning": "hm, well", "content": text, "tool_calls": [CALL]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls", "stop_reason": None}
    return Said(200, answering(dialect).whole({"model": "m", "created": 1, "choices": [choice], "usage": USAGE}))


def streamed(dialect: Any, text: str) -> Said:
    answer = answering(dialect)
    function = CALL["function"]
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "content": ""}, {"reasoning": "hm, "}, {"reasoning": "well"},
        *({"content": letter} for letter in text),
        {"tool_calls": [{"index": 0, **CALL, "function": {**function, "arguments": '{"a"'}}]},  # type: ignore[dict-item]
        {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]},
    ]  # fmt: skip
    told = b"".join(
        answer.chunk({"model": "m", "created": 1, "choices": [{"index": 0, "delta": delta}]}) for delta in deltas
    )
    last = {"index": 0, "delta": {}, "finish_reason": "tool_calls", "stop_reason": None}
    told += (
        answer.chunk({"model": "m", "choices": [last]}) + answer.chunk({"choices": [], "usage": USAGE}) + answer.end()
    )
    lines = [line[6:] for line in told.decode().splitlines() if line.startswith("data: ")]
    return Said(200, {}, [json.loads(line) for line in lines])


@pytest.mark.parametrize(("dialect", "shape"), [(Messages(), of_message), (Responses(), of_response)])
def test_a_stream_and_a_whole_answer_have_one_form(dialect: Any, shape: Any) -> None:
    assert shape(streamed(dialect, "red, blue")) == shape(whole(dialect, "red, blue"))
    assert shape(streamed(dialect, "red, blue")) != shape(whole(dialect, "red, green"))
