"""What is read from a request: its limit of tokens, and the estimate of its prompt."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunfleet_router.bodies import clientbody


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({}, None),
        ({"max_tokens": 5}, 5),
        ({"max_tokens": 5, "max_completion_tokens": 3}, 3),
        ({"max_tokens": None}, None),
    ],
)
def test_a_chats_limit_is_the_newer_fields(fields: dict[str, object], limit: int | None) -> None:
    body = {"model": "m", "messages": [{}], **fields}
    assert clientbody.parse("chat", json.dumps(body).encode()).output_limit == limit


def test_a_completions_limit_is_16_unless_said_or_null() -> None:
    def limit(**fields: object) -> int | None:
        return clientbody.parse("completion", json.dumps({"model": "m", "prompt": "a", **fields}).encode()).output_limit

    assert (limit(), limit(max_tokens=None), limit(max_tokens=3), limit(max_completion_tokens=3)) == (16, None, 3, 16)


def test_defaults_never_override_either_name_of_the_limit() -> None:
    ask = clientbody.parse("chat", b'{"model": "m", "messages": [{}], "max_completion_tokens": 3}')
    assert ask.with_defaults({"max_tokens": 9, "temperature": 0.5}).body == {**ask.body, "temperature": 0.5}
    assert ask.with_defaults({"max_tokens": 9}).output_limit == 3


@given(st.text(max_size=200))
def test_the_estimate_of_a_prompt_is_its_bytes_over_three(prompt: str) -> None:
    ask = clientbody.parse("completion", json.dumps({"model": "m", "prompt": prompt}).encode())
    assert ask.prompt_tokens == len(prompt.encode("utf-8", "surrogatepass")) // 3 + 1


def test_a_body_without_a_closer_look_has_no_field_that_one_is_for() -> None:
    looked_at = clientbody.REFUSED_FIELDS | clientbody._UNANSWERABLE | clientbody._COUNTS
    assert clientbody._PLAIN.isdisjoint(looked_at)
    assert not [name for name in clientbody._PLAIN if name.startswith(clientbody._STEERING_PREFIX)]
