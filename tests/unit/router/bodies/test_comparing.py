"""Which answers can be compared with one that was made again, and what a difference means."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sunfleet_router.bodies import clientbody
from sunfleet_router.bodies.clientbody import Ask, Kind
from sunfleet_router.bodies.comparing import ALTERNATIVES, Comparison, again, comparable, compare

ROWS: dict[str, list[list[Any]]] = {
    "token_ids": [[7, 8, 9], [5, 4, 6], [1, 2, 3]],
    "logprobs": [[-0.1, -2.5, -4.0], [-0.5, -0.75, -3.0], [-0.2, -1.9, -2.0]],
}


def ask(kind: Kind = "completion", **fields: Any) -> Ask:
    question: dict[str, Any] = {"prompt": "p"} if kind == "completion" else {"messages": [{"role": "user"}]}
    return clientbody.parse(kind, json.dumps({"model": "m", **question, **fields}).encode())


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([7, 5, 1], [7, 5, 1], Comparison("match")),
        ([7, 4, 9], [7, 5, 1], Comparison("near_tie", 1, 0.25)),
        ([7, 6, 1], [7, 5, 1], Comparison("mismatch", 1, 2.5)),
        ([99, 5, 1], [7, 5, 1], Comparison("mismatch", 0, None)),
        ([7, 5], [7, 5, 1], Comparison("mismatch", 2, None)),
        ([7, 5, 1, 1], [7, 5, 1], Comparison("mismatch", 3, None)),
    ],
    ids=["equal", "about equally probable", "less probable", "not among the best", "shorter", "longer"],
)
def test_the_first_difference_decides(first: list[int], second: list[int], expected: Comparison) -> None:
    assert compare(first, second, ROWS, near_tie=0.25) == expected


@pytest.mark.parametrize(("near_tie", "outcome"), [(0.2, "mismatch"), (0.3, "near_tie")])
def test_how_close_is_a_tie_is_a_setting(near_tie: float, outcome: str) -> None:
    assert compare([7, 4], [7, 5], ROWS, near_tie=near_tie).outcome == outcome


@pytest.mark.parametrize("kind", ["chat", "completion"])
@pytest.mark.parametrize(
    "fields",
    [
        {}, {"stream": True}, {"seed": 1}, {"top_p": 0.5}, {"stop": ["x"]}, {"repetition_penalty": 1.0},
        {"presence_penalty": 0}, {"logit_bias": None}, {"tools": [{}], "tool_choice": "auto"},
    ],
    ids=str,
)  # fmt: skip
def test_greedy_answers_can_be_compared(kind: Kind, fields: dict[str, Any]) -> None:
    assert comparable(ask(kind, temperature=0, **fields))


@pytest.mark.parametrize(
    "fields",
    [
        {}, {"temperature": 1}, {"temperature": None}, {"temperature": 0, "repetition_penalty": 1.1},
        {"temperature": 0, "presence_penalty": 0.5}, {"temperature": 0, "logit_bias": {"7": 1}},
        {"temperature": 0, "response_format": {"type": "json_object"}}, {"temperature": 0, "min_tokens": 4},
        {"temperature": 0, "structured_outputs": {"regex": "a"}}, {"temperature": 0, "tool_choice": "required"},
    ],
    ids=str,
)  # fmt: skip
def test_answers_that_chance_or_a_rule_has_shaped_cannot(fields: dict[str, Any]) -> None:
    assert not comparable(ask(**{"max_tokens": 8, **fields}))


def test_the_request_is_made_again_as_a_stream_with_enough_alternatives() -> None:
    chat = again(ask("chat", temperature=0, stream=True, stream_options={"include_usage": True}, max_tokens=9))
    assert (chat.stream, chat.include_usage, chat.output_limit) == (True, False, 9)
    assert (chat.body["logprobs"], chat.body["top_logprobs"]) == (True, ALTERNATIVES)
    assert not {"stream_options", "return_token_ids"} & chat.body.keys()
    assert again(ask("chat", logprobs=True, top_logprobs=9)).body["top_logprobs"] == 9
    assert again(ask(logprobs=1)).body["logprobs"] == ALTERNATIVES
    assert again(ask(return_token_ids=True)).body.keys() == again(ask()).body.keys()
