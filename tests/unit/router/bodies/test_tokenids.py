"""Token ids that pass through as text are found, counted and compared as lists would be."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunfleet_router.bodies.tokenids import TokenIds, find, find_slowly, take

IDS = st.lists(st.integers(0, 2**31))
TEXT = st.sampled_from(['"prompt_token_ids":[7]', "]", "plain", '\\"prompt_token_ids\\":[', "\x00prompt_token_ids"])


@given(ids=IDS, before=TEXT, after=TEXT, chat=st.booleans(), spaced=st.booleans())
def test_what_is_taken_out_and_what_is_put_back_is_the_same_answer(
    ids: list[int], before: str, after: str, chat: bool, spaced: bool
) -> None:
    choice: dict[str, Any] = {"text": before, "token_ids": [3]}
    answer: dict[str, Any] = {"id": after, "choices": [choice], "kv_transfer_params": {"x": [1]}}
    (answer if chat else choice)["prompt_token_ids"] = ids
    raw = json.dumps(answer, separators=None if spaced else (",", ":")).encode()
    assert find(raw) == find_slowly(raw)
    value, taken = take(raw)
    assert len(taken) == len(ids)
    assert orjson.loads(orjson.dumps(taken.json)) == ids
    assert orjson.loads(orjson.dumps(value)) == answer


@given(
    parts=st.lists(
        st.sampled_from([b'"prompt_token_ids":', b"[", b"]", b" ", b"\n", b"\v", b"\x00", b",", b"12", b"null"])
    )
)
def test_they_are_found_alike_with_and_without_the_native_module(parts: list[bytes]) -> None:
    raw = b"".join(parts)
    assert find(raw) == find_slowly(raw)


@pytest.mark.parametrize("raw", [b'{"choices": []}', b'{"prompt_token_ids": null}', b"[1]", b"3"])
def test_an_answer_without_them_has_none(raw: bytes) -> None:
    value, taken = take(raw)
    assert (value, len(taken)) == (json.loads(raw), 0)


@pytest.mark.parametrize("raw", [b"", b'{"prompt_token_ids":[1', b'{"prompt_token_ids":["]"]}'])
def test_what_is_no_json_or_no_list_of_ids_is_an_error(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"JSON|char|line"):
        take(raw)


def test_equality_is_that_of_the_numbers() -> None:
    assert TokenIds(b"[1, 2]") == TokenIds(b"[1,2]") == TokenIds.of([1, 2])
    assert TokenIds.of([1, 2]) != TokenIds.of([1, 20])
    assert TokenIds.of([]) == TokenIds(b"[ ]")
    assert not TokenIds()
