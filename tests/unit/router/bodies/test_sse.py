"""Where events end, and what the last one says, however reads cut them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunfleet_router.bodies import sse


@given(st.lists(st.sampled_from(["data: {}\n\n", "data: [DONE]\n\n", ": c\n\n", "data: x\r\n\r\n"])), st.integers(1, 9))
def test_events_survive_any_cut(events: list[str], step: int) -> None:
    raw = "".join(events).encode()
    got, begun = [], b""
    for at in range(0, len(raw), step):
        whole, begun = sse.split(begun + raw[at : at + step])
        assert whole == b"" or whole.endswith((b"\n\n", b"\r\n\r\n"))
        got.append(whole)
    assert (b"".join(got), begun) == (raw, b"")


@pytest.mark.parametrize(
    ("events", "last", "error_at"),
    [
        (b"data: {}\n\ndata: [DONE]\n\n", sse.DONE, -1),
        (b"data: [DONE]\r\n\r\n", sse.DONE, -1),
        (b"", b"", -1),
        (b'data: {}\n\ndata: {"error": {}}\n\n', b'data: {"error": {}}', 10),
        (b'data: {"text": "data: [DONE]"}\n\n', b'data: {"text": "data: [DONE]"}', -1),
        (b'data: {"text": "data: {\\"error\\""}\n\n', b'data: {"text": "data: {\\"error\\""}', -1),
    ],
)
def test_the_last_event_and_an_engines_error_are_found(events: bytes, last: bytes, error_at: int) -> None:
    assert (sse.last_event(events), sse.before_error(events)) == (last, error_at)
