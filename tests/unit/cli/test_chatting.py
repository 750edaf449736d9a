"""A conversation, and every way in which a stream can end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import click
import pytest

from sunfleet_cli.chatting import ChatError, Conversation, Reply, read, refusal
from sunfleet_cli.commands.chat import _converse
from sunfleet_cli.reach import Answer

PIECE = 'data: {"choices": [{"delta": {"content": "zwölf"}, "finish_reason": null}]}\n\n'
LAST = 'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n'
USAGE = 'data: {"choices": [], "usage": {"completion_tokens": 2}}\n\n'
DONE = "data: [DONE]\n\n"


def said(text: str, size: int = 7) -> tuple[list[str], Reply]:
    """Read ``text`` in chunks that end anywhere, also within a character."""
    raw, reply = text.encode(errors="surrogateescape"), Reply()
    return list(read((raw[at : at + size] for at in range(0, len(raw), size)), reply)), reply


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_pieces_come_whole_wherever_chunks_end(size: int) -> None:
    pieces, reply = said(": a comment\n\n" + PIECE + PIECE + LAST + USAGE + DONE, size)
    assert pieces == ["zwölf", "zwölf"]
    assert (reply.text, reply.finish_reason, reply.usage) == ("zwölfzwölf", "stop", {"completion_tokens": 2})


BROKEN = {
    "an error event": (
        PIECE + 'data: {"error": {"message": "no pod", "code": "sun_lost"}}\n\n',
        r"no pod \(sun_lost\)",
    ),
    "an end without [DONE]": (PIECE + LAST, "ended before"),
    "something else": ("data: <html>\n\n", "something else"),
    "nothing": ("", "ended before"),
    "bytes that are no text": (PIECE + "data: \udcff\n\n", "something else"),
}


@pytest.mark.parametrize("case", BROKEN, ids=str)
def test_what_is_no_whole_answer_is_an_error(case: str) -> None:
    text, says = BROKEN[case]
    with pytest.raises(ChatError, match=says):
        said(text)


def test_pieces_are_told_before_the_stream_goes_on() -> None:
    def chunks() -> Iterator[bytes]:
        yield PIECE.encode()
        raise AssertionError("the second chunk was wanted before the first piece was told")

    assert next(read(chunks(), Reply())) == "zwölf"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"error": {"message": "unknown model", "code": "model_not_found"}}', "404: unknown model (model_not_found)"),
        (b'{"kind": "Status", "message": "services is forbidden"}', "404: services is forbidden"),
        (b"<html>not here</html>\n", "404: <html>not here</html>"),
    ],
)
def test_a_refusal_says_what_the_server_said(body: bytes, says: str) -> None:
    assert str(refusal(404, body)) == says


def test_what_was_answered_is_sent_along_and_what_failed_is_not() -> None:
    talk = Conversation("maths", {"temperature": 0.0}, [{"role": "system", "content": "short"}])
    talk.ask("lost")
    talk.answered("six times two?", Reply(text="twelve"))
    sent = json.loads(talk.ask("and three?"))
    assert [one["content"] for one in sent["messages"]] == ["short", "six times two?", "twelve", "and three?"]
    assert (sent["model"], sent["temperature"], sent["stream"]) == ("maths", 0.0, True)


def test_a_conversation_goes_on_after_a_router_that_did_not_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words, failing = iter(["one", "two"]), [click.ClickException("the router does not answer: refused")]

    def prompt(*_: object, **__: object) -> str:
        if (word := next(words, None)) is None:
            raise click.Abort
        return word

    @contextmanager
    def post(_: str, __: bytes) -> Iterator[Answer]:
        if failing:
            raise failing.pop()
        yield Answer(200, iter([(PIECE + LAST + USAGE + DONE).encode()]))

    monkeypatch.setattr(click, "prompt", prompt)
    talk = Conversation("maths")
    _converse(post, talk)
    out, err = capsys.readouterr()
    assert (out, [one["content"] for one in talk.messages]) == ("zwölf\n", ["two", "zwölf"])
    assert "Error: the router does not answer: refused" in err
