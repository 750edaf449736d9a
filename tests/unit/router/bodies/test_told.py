"""What was told, from progress lines and events; and the lines themselves, however reads cut them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunfleet_api import wire
from sunfleet_router.bodies import answers, sse
from sunfleet_router.bodies.clientbody import parse
from sunfleet_router.bodies.handover import PrefillReply
from sunfleet_router.bodies.tokenids import TokenIds
from sunfleet_router.bodies.told import Told

JUNK = [
    b"",
    b": sun :\n",
    b": sun 1 2\n",
    b": sun 007\n",
    b": sun 5 \r\n",
    b": sun 1.5\n",
    b": sun -4\n",
    b': sun 5 {"a":[1]}\n',
]
ROWS: dict[str, Any] = {"token_ids": [[7, 8]], "logprobs": [[-0.5, -1.0]], "ranks": [1]}


def event(**chunk: Any) -> bytes:
    return b"data: " + json.dumps({"id": "x", "created": 9, "model": "m", **chunk}).encode()


def piece(text: str, finish: str | None = None, **more: Any) -> bytes:
    return event(choices=[{"index": 0, "text": text, "finish_reason": finish}], **more)


ROLE = event(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])


def fresh(**transfer: Any) -> Told:
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4, "prompt_tokens_details": None}
    return Told(PrefillReply({"usage": usage}, TokenIds.of([1, 2, 3]), [7], transfer, "length"))


@pytest.mark.parametrize(
    ("events", "rest", "told"),
    [
        (b"data: 1\n\n", b"data: 1\n\n", []),
        (b": sun 5\ndata: 1\n\n", b"data: 1\n\n", [(5,)]),
        (b": sun 5,6 \ndata: 1\n\n", b"data: 1\n\n", [(5, 6)]),
        (b": sun 5\ndata: 1\n\n: sun 6\ndata: 2\n\n", b"data: 1\n\ndata: 2\n\n", [(5,), (6,)]),
        (b"data: 0\n\n: sun 6\ndata: 2\n\n", b"data: 0\n\ndata: 2\n\n", [(6,)]),
        (b": sun 5\ndata: 1\n\ndata: 2\n\n: sun 7\ndata: 3\n\n", b"data: 1\n\ndata: 2\n\ndata: 3\n\n", [(5,), (7,)]),
        (b": sun 5\n: sun 6\ndata: 1\n\n", b"data: 1\n\n", [(5,), (6,)]),
        (b": sun 5\r\ndata: 1\r\n\r\n: sun 6\r\ndata: 2\r\n\r\n", b"data: 1\r\n\r\ndata: 2\r\n\r\n", [(5,), (6,)]),
        (b": ping\n\n: sun 5\ndata: 1\n\n", b": ping\n\ndata: 1\n\n", [(5,)]),
        (b'data: {"text": ": sun 5\\n: sun 6"}\n\n', b'data: {"text": ": sun 5\\n: sun 6"}\n\n', []),
    ],
)
def test_progress_lines_are_taken_out_and_nothing_else(events: bytes, rest: bytes, told: list[tuple[int, ...]]) -> None:
    lines = bytearray()
    assert sse.take_progress(events, lines) == rest
    assert [wire.Progress.from_line(line).token_ids for line in bytes(lines).splitlines()] == told


def test_tokens_and_rows_add_up_over_legs() -> None:
    told = fresh(**{wire.KEY_OUTPUT_LOGPROBS: ROWS})
    assert (told.output, told.logprobs) == ([7], ROWS)
    told.add(piece("a") + b"\n\n", wire.Progress((7,), ROWS).to_line(), piece("a"))
    told.add(piece("b") + b"\n\n", wire.Progress((8, 9), ROWS).to_line(), piece("b"))
    assert (told.output, told.created, told.exact) == ([7, 8, 9], 9, True)
    assert told.rows["token_ids"] == [[7, 8], [7, 8]]


@given(lines=st.lists(st.lists(st.integers(0, 1 << 40), max_size=3), max_size=6), junk=st.sampled_from(JUNK))
def test_lines_read_at_once_tell_what_they_tell_one_by_one(lines: list[list[int]], junk: bytes) -> None:
    raw = b"".join(wire.Progress(tuple(ids)).to_line() for ids in lines) + junk
    at_once = fresh()
    one_by_one: list[int] = []
    at_once.add(b"", raw, b"data: 1")
    try:
        for line in raw.splitlines():
            one_by_one.extend(wire.Progress.from_line(line).token_ids)
    except ValueError:
        assert (at_once.exact, at_once.tokens) == (False, one_by_one)
    else:
        assert at_once.tokens == one_by_one


def test_before_the_first_token_the_prefills_own_is_what_comes_next() -> None:
    told = fresh()
    told.add(ROLE + b"\n\n", b"", ROLE)
    assert (told.tokens, told.output, told.logprobs, told.created, told.exact) == ([], [7], None, 9, True)


def test_a_leg_that_told_nothing_changes_nothing() -> None:
    told = fresh()
    told.add(b"", b"", b"")
    assert (told.exact, told.created, told.last) == (True, None, b"")


@pytest.mark.parametrize("lines", [b"", b": sun x\n", b": sun 7 {\n"])
def test_text_of_unknown_tokens_can_never_be_gone_on_from(lines: bytes) -> None:
    told, last = fresh(), piece("a")
    told.add(last + b"\n\n", lines, last)
    assert not told.exact


@pytest.mark.parametrize(
    ("last", "ended", "usage", "rest"),
    [
        (piece("a"), False, True, None),
        (b"data: [DONE]", True, True, b""),
        (piece("a", "stop"), True, False, b"data: [DONE]\n\n"),
        (event(choices=[], usage={"total_tokens": 5}), True, True, b"data: [DONE]\n\n"),
    ],
)
def test_the_end_of_a_text_is_told_by_its_last_event(last: bytes, ended: bool, usage: bool, rest: bytes | None) -> None:
    told = fresh()
    told.add(last, wire.Progress((7,)).to_line(), last)
    assert told.ended() == ended
    if rest is not None:
        assert answers.ending(asking(usage), told) == rest


@pytest.mark.parametrize("running", [None, {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}])
def test_usage_that_was_not_told_is_counted(running: dict[str, int] | None) -> None:
    told, last = fresh(), piece("b", "length", object="text_completion", **({"usage": running} if running else {}))
    told.add(last, wire.Progress((7, 8)).to_line(), last)
    usage_event, done, _ = answers.ending(asking(usage=True), told).split(b"\n\n")
    chunk = json.loads(usage_event.removeprefix(b"data: "))
    assert {key: chunk["usage"][key] for key in ("prompt_tokens", "completion_tokens", "total_tokens")} == {
        "prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5,
    }  # fmt: skip
    assert (chunk["choices"], chunk["object"], chunk["id"], chunk["created"]) == ([], "text_completion", "x", 9)
    assert done == b"data: [DONE]"


def asking(usage: bool) -> Any:
    body = {"model": "m", "prompt": "p", "stream": True, "stream_options": {"include_usage": usage}}
    return parse("completion", json.dumps(body).encode())
