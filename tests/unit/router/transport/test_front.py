"""The server on raw sockets: what clients may send and how answers are framed, pipelined, cut and ended."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import pytest

from sunfleet_router.errors import ClientGoneError
from sunfleet_router.surface.presence import Presence
from sunfleet_router.transport.exchange import Exchange, Inbox
from sunfleet_router.transport.front import Front
from sunfleet_router.transport.sockets import Sockets

ASK = b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi"


async def body_of(receive: Any) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError
        body, more = body + message["body"], message["more_body"]
    return body


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Any path that is not direct: tells what it was asked, in two parts."""
    body = await body_of(receive)
    told = f"{scope['method']} {scope['path']} {scope['query_string'].decode()} {body.decode()}".encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})
    await send({"type": "http.response.body", "body": told[:5], "more_body": True})
    await send({"type": "http.response.body", "body": told[5:]})


async def echo(_: Any, receive: Any, send: Any) -> None:
    body = await body_of(receive)
    send.begin(200, [(b"content-length", b"%d" % len(body))])
    send.end(body)


async def broken(_: Any, __: Any, ___: Any) -> None:
    raise RuntimeError("a bug")


async def half(_: Any, __: Any, send: Any) -> None:
    send.begin(200, [])
    send.write(b"half of it")


@dataclass
class Peer:
    front: Front
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def until_closed(self, *sent: bytes) -> bytes:
        for part in sent:
            self.writer.write(part)
            await asyncio.sleep(0)
        async with asyncio.timeout(5):
            return await self.reader.read()

    async def exactly(self, expected: bytes) -> None:
        async with asyncio.timeout(5):
            assert await self.reader.readexactly(len(expected)) == expected


@asynccontextmanager
async def connected(front: Front) -> AsyncIterator[Peer]:
    assert front._server is not None
    port = cast("socket.socket", front._server.sockets[0]).getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    yield Peer(front, reader, writer)
    writer.close()


@pytest.fixture
async def front(sockets: Sockets) -> AsyncIterator[Front]:
    direct: dict[bytes, Any] = {b"/echo": echo, b"/broken": broken, b"/half": half}
    front = Front(app, direct, keep_alive=60, sockets=sockets)
    await front.start("127.0.0.1", 0)
    yield front
    await front.stop(1)
    await asyncio.sleep(0.01)
    assert not front.connections


@pytest.fixture
async def peer(front: Front) -> AsyncIterator[Peer]:
    async with connected(front) as one:
        yield one


async def test_a_connection_serves_one_request_after_the_other(peer: Peer) -> None:
    for _ in range(3):
        peer.writer.write(ASK)
        await peer.exactly(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")


async def test_requests_that_come_together_are_answered_in_order(peer: Peer) -> None:
    bodies = [b"%d" % number for number in range(10, 20)]
    peer.writer.write(b"".join(b"POST /echo HTTP/1.1\r\ncontent-length: 2\r\n\r\n" + body for body in bodies))
    for body in bodies:
        await peer.exactly(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n" + body)


@pytest.mark.parametrize("at", [None, 1, 4, 20, len(ASK) - 3, len(ASK) - 1])
async def test_where_the_reads_of_a_request_end_changes_nothing(peer: Peer, at: int | None) -> None:
    """Whole it is taken apart at once, in two reads by the parser; before and after it come others of either kind."""
    for _ in range(2):
        peer.writer.write(ASK)
        await peer.exactly(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")
        asked = ASK.replace(b"/echo", b"/x%20y?q=1")
        for part in (asked[:at], asked[at:]) if at else (asked,):
            peer.writer.write(part)
            await asyncio.sleep(0.002)
        head = b"HTTP/1.1 200 OK\r\na: b\r\ntransfer-encoding: chunked\r\n\r\n"
        await peer.exactly(head + b"5\r\nPOST \r\n" + b"b\r\n/x y q=1 hi\r\n0\r\n\r\n")


async def test_a_plain_request_that_comes_too_early_waits_for_its_turn(peer: Peer) -> None:
    for body in (b"ab", b"cd", b"ef"):  # each a read of its own
        peer.writer.write(ASK[:-2] + body)
        await asyncio.sleep(0)
    for body in (b"ab", b"cd", b"ef"):
        await peer.exactly(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n" + body)


async def test_what_comes_behind_a_request_that_ends_the_connection_is_dropped_and_does_not_reset_it(
    front: Front,
) -> None:
    """Also a plain request in a read of its own, and more behind it that nobody has read when the answer goes out."""
    go_on, served = asyncio.Event(), []

    async def slow(scope: Any, _: Any, send: Any) -> None:
        served.append(scope["path"])
        await go_on.wait()
        send.begin(200, [(b"content-length", b"0")])
        send.end()

    front.app = slow
    async with connected(front) as peer:
        for part in (b"POST /last HTTP/1.1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", ASK, ASK):
            peer.writer.write(part)
            await asyncio.sleep(0.01)
        go_on.set()
        assert await peer.until_closed() == b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    assert served == ["/last"]


async def test_a_body_of_unknown_length_is_sent_in_chunks(peer: Peer) -> None:
    peer.writer.write(b"POST /x%20y?q=1 HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")
    head = b"HTTP/1.1 200 OK\r\na: b\r\ntransfer-encoding: chunked\r\n\r\n"
    await peer.exactly(head + b"5\r\nPOST \r\n" + b"c\r\n/x y q=1 abc\r\n0\r\n\r\n")


async def test_http_1_0_gets_no_chunks_and_its_connection_is_closed(peer: Peer) -> None:
    answer = await peer.until_closed(b"GET /x HTTP/1.0\r\n\r\n")
    assert answer == b"HTTP/1.1 200 OK\r\na: b\r\nconnection: close\r\n\r\nGET /x  "


async def test_head_has_no_body(peer: Peer) -> None:
    peer.writer.write(b"HEAD /x HTTP/1.1\r\n\r\n" + ASK)
    await peer.exactly(b"HTTP/1.1 200 OK\r\na: b\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")


async def test_a_client_that_asks_for_it_is_disconnected(peer: Peer) -> None:
    answer = await peer.until_closed(ASK.replace(b"host: x", b"connection: close"))
    assert answer == b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi"


async def test_a_client_that_waits_to_be_asked_for_its_body_is_asked(peer: Peer) -> None:
    peer.writer.write(b"POST /echo HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
    await peer.exactly(b"HTTP/1.1 100 Continue\r\n\r\n")
    peer.writer.write(b"hi")
    await peer.exactly(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")


async def test_an_upgrade_is_ignored_and_nothing_after_it_is_read(peer: Peer) -> None:
    upgrade = b"GET /x HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"
    answer = await peer.until_closed(upgrade, ASK)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"NONSENSE\r\n\r\n", b"400"),
        (b"POST /echo HTTP/1.1\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nhi", b"400"),
        (b"POST /echo HTTP/1.1\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\nhi", b"400"),
        (b"POST /echo HTTP/1.1\r\ncontent-length: x\r\n\r\nhi", b"400"),
        (b"GET /x HTTP/1.1\r\nlong: " + b"x" * (1 << 20), b"431"),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_what_cannot_be_read_is_refused_and_the_connection_closed(
    peer: Peer, sent: bytes, status: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sunfleet_router.transport.front._LINGER", 0.1)
    answer = await peer.until_closed(sent)
    assert answer.split(b" ")[1] == status
    assert b"connection: close" in answer
    assert b'"error":{' in answer


async def test_a_body_that_takes_its_time_is_read_as_it_comes(peer: Peer) -> None:
    peer.writer.write(b"POST /echo HTTP/1.1\r\ncontent-length: 9\r\n\r\nfir")
    for part in (b"st ", b"bit"):
        await asyncio.sleep(0.01)
        peer.writer.write(part)
    await peer.exactly(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nfirst bit")
    peer.writer.write(ASK)
    await peer.exactly(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")


async def test_a_large_body_and_the_request_behind_it_are_both_whole(peer: Peer) -> None:
    large = b"x" * 3_000_000
    peer.writer.write(b"POST /echo HTTP/1.1\r\ncontent-length: 3000000\r\n\r\n" + large + ASK)
    await peer.exactly(b"HTTP/1.1 200 OK\r\ncontent-length: 3000000\r\n\r\n" + large)
    await peer.exactly(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")


async def test_an_application_may_answer_before_the_body_is_whole_and_the_rest_is_never_a_request(front: Front) -> None:
    async def refuse(_: Any, __: Any, send: Any) -> None:
        send.begin(401, [(b"content-length", b"0")])
        send.end()

    front.app = refuse
    async with connected(front) as peer:
        answer = await peer.until_closed(b"POST /x HTTP/1.1\r\ncontent-length: 1000\r\n\r\n", ASK + ASK)
    assert answer == b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


async def test_a_body_that_nobody_asks_for_is_not_read_into_memory(front: Front) -> None:
    go_on = asyncio.Event()

    async def slow(_: Any, receive: Any, send: Any) -> None:
        await go_on.wait()
        body = await body_of(receive)
        send.begin(200, [(b"size", b"%d" % len(body)), (b"content-length", b"0")])
        send.end()

    front.app = slow
    async with connected(front) as peer:
        peer.writer.write(b"POST /x HTTP/1.1\r\ncontent-length: 5000000\r\n\r\n" + b"x" * 5_000_000)
        await asyncio.sleep(0.05)
        (connection,) = front.connections
        assert connection._reading is not None
        assert connection._reading.size < 1_000_000
        go_on.set()
        await peer.exactly(b"HTTP/1.1 200 OK\r\nsize: 5000000\r\n")


async def test_a_body_in_broken_chunks_ends_the_request(front: Front) -> None:
    ended = asyncio.Event()

    async def read(_: Any, receive: Any, __: Any) -> None:
        try:
            await body_of(receive)
        except ConnectionError:
            ended.set()

    front.app = read
    async with connected(front) as peer:
        peer.writer.write(b"POST /x HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n")
        await asyncio.sleep(0.01)
        peer.writer.write(b"zz\r\n")
        async with asyncio.timeout(5):
            await ended.wait()


async def test_a_bug_is_a_500_and_half_an_answer_a_broken_connection(peer: Peer) -> None:
    peer.writer.write(ASK.replace(b"/echo", b"/broken"))
    await peer.exactly(b"HTTP/1.1 500 ")
    async with connected(peer.front) as another:
        assert not (await another.until_closed(ASK.replace(b"/echo", b"/half"))).endswith(b"0\r\n\r\n")


async def test_a_connection_that_idles_is_closed_and_one_that_is_served_is_not(front: Front) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_: Any, __: Any, send: Any) -> None:
        began.set()
        await go_on.wait()
        send.begin(200, [(b"content-length", b"0")])
        send.end()

    front.app = slow
    async with connected(front) as idle, connected(front) as busy:
        busy.writer.write(b"GET /slow HTTP/1.1\r\n\r\n")
        await began.wait()
        for connection in tuple(front.connections):
            connection.close_if_idle_since(asyncio.get_running_loop().time() + 1)
        assert await idle.until_closed() == b""
        go_on.set()
        await busy.exactly(b"HTTP/1.1 200 OK\r\n")


async def test_a_stop_waits_for_answers_and_closes_idle_connections(front: Front) -> None:
    go_on = asyncio.Event()

    async def slow(_: Any, __: Any, send: Any) -> None:
        await go_on.wait()
        send.begin(200, [(b"content-length", b"0")])
        send.end()

    front.app = slow
    async with connected(front) as idle, connected(front) as busy:
        busy.writer.write(b"GET /slow HTTP/1.1\r\n\r\n")
        await asyncio.sleep(0.01)
        stopping = asyncio.ensure_future(front.stop(5))
        assert await idle.until_closed() == b""
        assert not stopping.done()
        go_on.set()
        assert (await busy.until_closed()).startswith(b"HTTP/1.1 200 OK\r\n")
        await stopping


def whole() -> Inbox:
    inbox = Inbox()
    inbox.finish()
    return inbox


class Socket:
    """A connection whose client reads nothing."""

    def __init__(self) -> None:
        self.blocked = True
        self.put_there: list[bytes] = []
        self.aborted = False
        self.pump: Any = None

    def put(self, data: bytes) -> None:
        self.put_there.append(data)

    def finished(self, *, keep: bool) -> None: ...

    def abort(self) -> None:
        self.aborted = True


async def test_asgis_send_waits_for_room_and_for_no_client_that_has_left() -> None:
    for leaves in (False, True):
        socket = Socket()
        exchange = Exchange(socket, whole())
        await exchange({"type": "http.response.start", "status": 200})
        sending = asyncio.ensure_future(exchange({"type": "http.response.body", "body": b"x", "more_body": True}))
        await asyncio.sleep(0)
        assert not sending.done()
        if leaves:
            exchange.lost()
        else:
            socket.blocked = False
            exchange.has_room()
        await sending
        assert len(socket.put_there) == 1


async def test_a_presence_hears_of_a_client_that_left_before_or_meanwhile() -> None:
    for before in (True, False):
        inbox = whole()
        if before:
            inbox.close()
        asyncio.get_running_loop().call_soon(inbox.close)
        with pytest.raises(ClientGoneError):
            await _work_for(inbox)


async def _work_for(inbox: Inbox) -> None:
    with Presence(inbox):
        await asyncio.sleep(5)
