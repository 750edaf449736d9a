"""Long texts that pass through unread: the same document as a parser's, the same refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sunfleet_router.bodies import clientbody, legs, longtext
from sunfleet_router.bodies.beginning import beginning
from sunfleet_router.bodies.longtext import LongText, dumps, loads
from sunfleet_router.errors import InvalidRequestError

LEAST = 10  # bytes with the quotes, in place of thousands

TEXT = st.text(max_size=12) | st.sampled_from(
    ["\x00" * 9, 'a "quoted" \\ text', "é" * 8, "\U0001f600 smile", "\x1f\n\t" * 3, "plain text"]
)
PROMPT = TEXT | st.lists(TEXT, max_size=3) | st.lists(st.integers(0, 9), max_size=4) | st.none() | st.integers()
PART = st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}) | st.just(
    {"type": "image_url", "image_url": {"url": "x"}}
)
MESSAGE = st.fixed_dictionaries({"role": TEXT, "content": TEXT | st.lists(PART, max_size=3) | st.none()}) | TEXT
BODY = st.fixed_dictionaries(
    {},
    optional={
        "prompt": PROMPT, "messages": st.lists(MESSAGE, max_size=3) | TEXT, "model": TEXT, "a long key": TEXT,
        "stop": st.lists(TEXT),
    },
)  # fmt: skip


@pytest.fixture(autouse=True)
def short() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(longtext, "LONG", LEAST)
        yield


def texts_of(value: object) -> list[LongText]:
    if isinstance(value, LongText):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inner for text in texts_of(one)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=BODY, ascii_only=st.booleans(), spaced=st.booleans())
def test_what_goes_on_is_the_document_that_came(body: dict[str, Any], ascii_only: bool, spaced: bool) -> None:
    raw = json.dumps(body, ensure_ascii=ascii_only, indent=1 if spaced else None).encode()
    assert orjson.loads(dumps(loads(raw))) == body
    for text in texts_of(loads(raw)):
        assert text.size == len(str(orjson.loads(dumps(text))).encode())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=BODY, data=st.data())
def test_what_a_parser_refuses_is_refused_alike(body: dict[str, Any], data: st.DataObject) -> None:
    raw = bytearray(json.dumps(body, ensure_ascii=data.draw(st.booleans())).encode())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at : at + data.draw(st.integers(0, 2))] = data.draw(
        st.sampled_from([b"", b'"', b"\\", b"\n", b"\xff", b"\xed\xa0\x80", b"\\ud800", b"\\u00e"])
    )
    found: list[object] = []
    for parse in (loads, orjson.loads):
        try:
            found.append(orjson.loads(dumps(parse(bytes(raw)))))
        except orjson.JSONDecodeError as error:
            found.append(str(error))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "inner",
    [
        rb"\ud800 half", rb"\udc00 half", rb"\ud800\u0041", rb"\ud800\ud800", rb"\ud80", rb"\u00G0 six", rb"\x six",
        rb"six \ ", b"\xed\xa0\x80 half", b"\xc0\x80 long", b"\xe0\x80\x80 long", b"\xf0\x80\x80\x80 long",
        b"\xf4\x90\x80\x80", b"\xf5six six", b"\x80 alone", b"\xc3(  cut", b"a\nb   ", b"nul \x00  ",
        b"twelve bytes\xe2\x82", b"twelve bytes\\",
    ],
)  # fmt: skip
def test_a_text_that_is_none_is_never_passed_on(inner: bytes) -> None:
    raw = b'{"model": "m", "prompt": "' + inner + b'", "x": 1}'
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(raw)
    with pytest.raises(orjson.JSONDecodeError):
        loads(raw)


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_document_that_breaks_off_is_refused(cut: int) -> None:
    raw = rb'{"prompt": "a text of \u00e9\ud83d\ude00 some length \\", "model": "m"}'
    with pytest.raises(orjson.JSONDecodeError):
        loads(raw[:-cut])


def test_only_prompts_and_messages_stay_unread() -> None:
    part = b'{"type": "text", "text": "long enough"}'
    body = loads(b'{"prompt": "long enough", "messages": [{"role": "user", "content": [%b]}]}' % part)
    assert isinstance(body["prompt"], LongText)
    assert isinstance(body["messages"][0]["content"][0]["text"], LongText)
    for raw in (
        b'{"prompt": "long enough", "user": "who is asked about"}',
        b'{"prompt": "long enough", "prompt": "long enough"}',
        b'["long enough"]',
        b'{"long enough": 1}',
    ):
        assert loads(raw) == orjson.loads(raw)


def test_a_client_cannot_name_a_text_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = orjson.dumps({"prompt": longtext._MARK + "0", "user": "x"})
    monkeypatch.setattr(longtext, "LONG", 1 << 20)
    assert loads(raw) == orjson.loads(raw)


def test_a_request_is_judged_and_placed_as_if_its_prompt_had_been_read(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = 'größer "als" \U0001f600 ' * 400
    raw = json.dumps({"model": "m", "prompt": prompt, "max_tokens": 5}).encode()
    unread = clientbody.parse("completion", raw)
    assert isinstance(unread.body["prompt"], LongText)
    monkeypatch.setattr(longtext, "outline", lambda *_: None)
    read = clientbody.parse("completion", raw)
    assert read.body["prompt"] == prompt
    assert (unread.prompt_tokens, unread.prompts, unread.size) == (read.prompt_tokens, read.prompts, read.size)
    assert orjson.loads(legs.prefill_body(unread, "salt", "m")) == orjson.loads(legs.prefill_body(read, "salt", "m"))
    assert len(beginning(unread.body)) > 1000


def test_a_batch_may_hold_long_prompts() -> None:
    ask = clientbody.parse("completion", b'{"model": "m", "prompt": ["a long prompt", "b"]}')
    assert (ask.prompts, ask.prompt_tokens) == (2, 13 // 3 + 1 + 1)
    single = clientbody.parse("completion", b'{"model": "m", "prompt": ["a long prompt"]}')
    assert isinstance(single.body["prompt"], LongText)
    assert single.prompts == 1


def test_what_is_no_json_is_a_clear_error() -> None:
    with pytest.raises(InvalidRequestError, match="not valid JSON"):
        clientbody.parse("completion", b'{"model": "m", "prompt": "long enough", }')


def test_nothing_else_is_written_as_json() -> None:
    with pytest.raises(TypeError, match="set"):
        dumps({"a": {1}})
