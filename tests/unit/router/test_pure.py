"""The small pure modules: selectors, event boundaries, request facts, hand-over, error texts."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunfleet_router.bodies import clientbody, legs, sse
from sunfleet_router.bodies.handover import PrefillReply
from sunfleet_router.bodies.tokenids import TokenIds
from sunfleet_router.engines import verdict
from sunfleet_router.errors import EngineRefusedError, HandoverIncompleteError, LegFailedError, sanitise
from sunfleet_router.fleet import selectors

LABELS = {"app": "x", "tier": "gold", "serving.sunfleet.dev/role": "prefill"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("app=x", True),
        ("app==x", True),
        ("app = x , tier = gold", True),
        ("app=y", False),
        ("app=x,tier=y", False),
        ("app!=y", True),
        ("app!=x", False),
        ("nope!=x", True),
        ("app", True),
        ("nope", False),
        ("!nope", True),
        ("!app", False),
        ("app in (x,y)", True),
        ("app in (y, z)", False),
        ("app notin (y)", True),
        ("app notin (x)", False),
        ("serving.sunfleet.dev/role=prefill,tier in (gold)", True),
        ("", False),
    ],
)
def test_a_selector_selects_what_kubernetes_would(text: str, matches: bool) -> None:
    assert selectors.parse(text).matches(LABELS) == matches


@pytest.mark.parametrize("text", ["a b", "a=b=c", "=x", "a in x", "a in (", ",", "a=b,,c=d"])
def test_a_bad_selector_is_refused(text: str) -> None:
    with pytest.raises(selectors.SelectorError):
        selectors.parse(text)


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


FULL = {
    "remote_block_ids": [1], "remote_engine_id": "e", "remote_request_id": "r", "remote_host": "h", "remote_port": 1,
}  # fmt: skip


def test_no_decode_body_can_be_made_of_an_incomplete_hand_over() -> None:
    ask = clientbody.parse("completion", b'{"model": "m", "prompt": "a"}')
    for size in range(len(FULL)):
        for some in itertools.combinations(FULL, size):
            reply = PrefillReply({}, TokenIds.of([1]), [2], {name: FULL[name] for name in some}, "length")
            with pytest.raises(HandoverIncompleteError):
                legs.decode_body(ask, "s", reply)
    for prompt, output in (([], [2]), ([1], [])):
        with pytest.raises(HandoverIncompleteError):
            legs.decode_body(ask, "s", PrefillReply({}, TokenIds.of(prompt), output, FULL, "length"))
    assert legs.decode_body(ask, "s", PrefillReply({}, TokenIds.of([1]), [2], FULL, "length"))


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{}", b'{"choices": []}', b'{"choices": [1]}', b'{"choices": [{"token_ids": 1}]}']
)
def test_a_prefill_answer_of_another_shape_is_a_failure_of_the_leg(raw: bytes) -> None:
    with pytest.raises(LegFailedError):
        legs.read_prefill(raw)


@pytest.mark.parametrize(
    ("status", "expected", "retryable"),
    [
        (400, 400, None),
        (422, 422, None),
        (401, 502, False),
        (404, 502, False),
        (429, 503, True),
        (500, 502, False),
        (503, 503, True),
    ],
)
def test_what_an_engines_status_means(status: int, expected: int, retryable: bool | None) -> None:
    error = verdict.of_answer("prefill", status, b'{"error": {"message": "m", "code": 1}}')
    assert error.status == expected
    assert isinstance(error, EngineRefusedError) if retryable is None else isinstance(error, LegFailedError)
    assert retryable is None or getattr(error, "retryable", None) == retryable


def test_an_engines_text_is_passed_on_without_addresses() -> None:
    text = sanitise("at http://a.b:1/c, 10.0.0.1:80 or [fe80::1:2:3]:9; keep 12:30 and v1.2.3. " + "x" * 9000)
    assert text.startswith("at [address] [address] or [address]; keep 12:30 and v1.2.3.")
    assert len(text) == 2000
