"""What the native module takes apart is what the parser would have: the same parts, or nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httptools
import pytest

from sunfleet_router.transport import plain

REQUEST = b"POST /v1/completions?a=b HTTP/1.1\r\nHost: x:1\r\nContent-Length: 2\r\n\r\nhi"
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


@dataclass
class Heard:
    """All that httptools makes of some bytes."""

    parser: Any = None
    begun: int = 0
    ended: int = 0
    kept: bool = False  # the connection, as it was when the message ended
    target: bytes = b""
    body: bytes = b""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)

    def on_message_begin(self) -> None:
        self.begun += 1

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.ended += 1
        self.kept = self.parser.should_keep_alive()


def parsed(kind: Callable[[Heard], Any], data: bytes) -> tuple[Heard, Any]:
    heard = Heard()
    heard.parser = parser = kind(heard)
    parser.feed_data(data)
    assert (heard.begun, heard.ended, heard.kept) == (1, 1, True)
    assert parser.get_http_version() == "1.1"
    return heard, parser


def check_request(data: bytes) -> bool:
    """Whether it is taken; fails where the parser would differ."""
    taken = plain.request(data)
    if taken is None:
        return False
    heard, parser = parsed(httptools.HttpRequestParser, data)
    assert taken == (parser.get_method().decode(), heard.target, heard.headers, heard.body)
    return True


def check_answer(data: bytes) -> bool:
    taken = plain.answer(data)
    if taken is None:
        return False
    heard, parser = parsed(httptools.HttpResponseParser, data)
    assert taken == (parser.get_status_code(), heard.body)
    return True


@pytest.mark.parametrize(
    "data",
    [
        REQUEST,
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nhost:x\r\nConnection: keep-alive\r\naccept:  */*, text/html\r\n\r\n",
        b"POST /x HTTP/1.1\r\ncontent-length: 3\r\nx-y: \"a\" {b}\r\n\r\n\r\n\x00",
        b"POST /x HTTP/1.1\r\ncontent-length: 0\r\n\r\n",
    ],
)  # fmt: skip
def test_a_plain_request_is_taken_apart_as_the_parser_does_it(data: bytes) -> None:
    assert check_request(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        REQUEST + b"more",
        REQUEST + REQUEST,
        b"\r\n" + REQUEST,
        REQUEST.replace(b"HTTP/1.1", b"HTTP/1.0"),
        REQUEST.replace(b"POST", b"PUT"),
        REQUEST.replace(b"POST", b"post"),
        REQUEST.replace(b"/v1", b"http://x/v1"),
        REQUEST.replace(b"?a=b", b"#a"),
        REQUEST.replace(b"?a=b", b"\xc3\xa4"),
        REQUEST.replace(b"Length: 2", b"Length: 02x"),
        REQUEST.replace(b"Length: 2", b"Length: +2"),
        REQUEST.replace(b"Length: 2", b"Length: 1"),
        REQUEST.replace(b"Length: 2", b"Length: 00000000000002"),
        REQUEST.replace(b"Host: x:1", b"Content-Length: 2"),
        *[
            REQUEST.replace(b"Host: x:1", odd)
            for odd in (
                b"Transfer-Encoding: chunked", b"Expect: 100-continue", b"Connection: close", b"Upgrade: h2c",
                b"Connection: keep-alive, upgrade", b"Proxy-Connection: close", b"Host: ", b"Host : x", b"Host: x\n y",
                b"Host: x\r\n y", b" Host: x", b"Host: \xff", b"Host: x\ty", b": x", b"Host", b"Host: x ",
                b"H\x00st: x",
            )
        ],
        b"POST /x HTTP/1.1\r\n" + b"".join(b"a%d: b\r\n" % number for number in range(65)) + b"\r\n",
        b"POST /x HTTP/1.1\r\na: " + b"b" * (33 << 10) + b"\r\n\r\n",
    ],
)  # fmt: skip
def test_what_is_odd_is_left_to_the_parser(data: bytes) -> None:
    assert plain.request(data) is None


def test_a_plain_answer_is_taken_apart_as_the_parser_does_it() -> None:
    assert check_answer(ANSWER)
    assert check_answer(ANSWER.replace(b"200 OK", b"503 Service Unavailable"))
    assert check_answer(b"HTTP/1.1 404 \r\nconnection: Keep-Alive\r\ncontent-length: 0\r\n\r\n")


@pytest.mark.parametrize(
    "data",
    [
        ANSWER + b"x",
        ANSWER[:-1],
        ANSWER.replace(b"200", b"204"),
        ANSWER.replace(b"200", b"304"),
        ANSWER.replace(b"200", b"100"),
        ANSWER.replace(b"200", b"600"),
        ANSWER.replace(b"200 OK", b"200"),
        ANSWER.replace(b"HTTP/1.1", b"HTTP/1.0"),
        ANSWER.replace(b"content-type: application/json", b"connection: close"),
        ANSWER.replace(b"content-type: application/json", b"transfer-encoding: chunked"),
        b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)  # fmt: skip
def test_an_answer_that_is_odd_is_left_to_the_parser(data: bytes) -> None:
    assert plain.answer(data) is None


WORDS = (
    b"POST ", b"GET ", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 ", b"404 Not Found\r\n", b"/v1/x", b"?q=1", b" HTTP/1.1\r\n",
    b"content-length: 2\r\n", b"Content-Length: 12\r\n", b"content-length:0\r\n", b"connection: keep-alive\r\n",
    b"connection: close\r\n", b"transfer-encoding: chunked\r\n", b"x-a: b c\r\n", b"x: \t1\r\n", b"upgrade: x\r\n",
    b"\r\n", b"\n", b"hi", b"hello, world", b"2\r\nhi\r\n0\r\n\r\n", b"expect: 100-continue\r\n", b" ", b"\x80",
    b"\x00",
)  # fmt: skip


def mutated(data: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randint(0, 3)):
        at, end = sorted((chance.randint(0, len(data)), chance.randint(0, len(data))))
        piece = chance.choice((*WORDS, data[at:end], bytes((chance.randrange(256),))))
        data = data[:at] + piece + data[chance.choice((at, end, at + 1)) :]
    return data


@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_taken_the_parser_would_have_read_alike(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    taken = 0
    for _ in range(1500):
        made = b"".join(chance.choices(WORDS, k=chance.randint(1, 9)))
        data = mutated(chance.choice((REQUEST, ANSWER, made)), chance)
        taken += check_request(data) + check_answer(data)
    assert taken > 100, "else nothing was compared"
