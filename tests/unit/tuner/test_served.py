"""Conversations reach the template as the engine writes them, whichever of the API's forms the data has."""

from __future__ import annotations

from typing import Any

import pytest

from sunfleet_tuner.served import messages_of, tools_of, without_nulls

CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}


def calling(**function: Any) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": function}]}]


def test_parts_of_a_text_are_lines_and_nothing_is_an_empty_text() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    given = [{"role": "user", "content": parts}, {"role": "assistant", "content": None}, {"role": "user"}]
    assert [message["content"] for message in messages_of(given)] == ["a\nb", "", ""]


@pytest.mark.parametrize(
    ("arguments", "as_served"), [({"a": 1}, {"a": 1}), ('{"a": 1}', {"a": 1}), ("", {}), (None, {}), ("{}", {})]
)
def test_arguments_of_a_tool_call_are_objects(arguments: Any, as_served: dict[str, int]) -> None:
    (message,) = messages_of(calling(name="f", arguments=arguments))
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": as_served}


def test_no_tool_call_is_none_and_what_names_a_call_stays() -> None:
    (message,) = messages_of([{"role": "assistant", "content": "a", "tool_calls": []}])
    assert "tool_calls" not in message
    asked, told = messages_of(
        [{"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "1", "content": "2"}]
    )
    assert asked["tool_calls"] == [CALL]
    assert told == {"role": "tool", "tool_call_id": "1", "content": "2"}


def test_tools_have_the_engines_keys_in_the_engines_order() -> None:
    given = {"function": {"parameters": {"b": 1, "a": 2}, "name": "f", "example": "x"}, "type": "function"}
    (tool,) = tools_of([given]) or []
    assert list(tool) == ["type", "function"]
    assert list(tool["function"].items()) == [("name", "f"), ("description", None), ("parameters", {"b": 1, "a": 2})]
    (strict,) = tools_of([{"type": "function", "function": {"name": "f", "strict": True}}]) or []
    assert strict["function"]["strict"] is True


def test_tools_may_be_json_and_none_are_none() -> None:
    assert tools_of('[{"type": "function", "function": {"name": "f"}}]') == tools_of(
        [{"type": "function", "function": {"name": "f"}}]
    )
    empty: list[Any] = [None, [], "", "[]"]
    assert [tools_of(given) for given in empty] == [None] * 4


def test_nulls_that_a_column_brings_go_at_any_depth() -> None:
    row = {"tools": [{"function": {"parameters": {"a": {"type": "string", "enum": None}, "b": None}}}], "id": None}
    assert without_nulls(row) == {"tools": [{"function": {"parameters": {"a": {"type": "string"}}}}]}


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ("hello", "list of objects with a role"),
        ([{"content": "a"}], "list of objects with a role"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "nothing else can be tuned"),
        ([{"role": "user", "content": 3}], "nothing else can be tuned"),
        (calling(name="f", arguments="{"), "arguments of tool call 'f' are no JSON"),
        (calling(name="f", arguments="[1]"), "arguments of tool call 'f' have to be an object"),
        ([{"role": "assistant", "tool_calls": [{"type": "custom", "function": {}}]}], "of type function"),
        ([{"role": "assistant", "tool_calls": ["f"]}], "of type function"),
    ],
)
def test_messages_that_no_request_could_hold_are_refused(given: Any, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        messages_of(given)


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ([{"name": "f", "parameters": {}}], "the form of requests"),
        ([{"type": "function", "function": {"description": "no name"}}], "the form of requests"),
        ({"type": "function"}, "have to be a list"),
        ("[", "tools are no JSON"),
    ],
)
def test_tools_that_no_request_could_hold_are_refused(given: Any, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        tools_of(given)
