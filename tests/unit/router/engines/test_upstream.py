"""The engine client against raw servers: reuse, stale connections, limits, bad framing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from sunfleet_router.engines.upstream import AnswerTooLargeError, Reply, Upstream
from sunfleet_router.fleet.snapshot import Endpoint
from sunfleet_router.transport.connection import (
    BadFramingError,
    ConnectFailedError,
    Connection,
    ConnectionCutError,
    UpstreamError,
)
from sunfleet_router.transport.sockets import Sockets
from sunfleet_router_streams import until

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[Endpoint]:
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield Endpoint("u", "n", "127.0.0.1", port, "prefill", "f")
    finally:
        server.close()


@pytest.fixture
async def upstream(sockets: Sockets) -> AsyncIterator[Upstream]:
    client = Upstream(connect_timeout=1, idle_timeout=3, sockets=sockets)
    yield client
    client.close()
    await asyncio.sleep(0.01)


async def fetch(client: Upstream, endpoint: Endpoint, *, resend: bool = True, limit: int = 1000) -> Reply:
    async with asyncio.timeout(5):
        return await client.fetch(endpoint, "/x", {"a": "b"}, b"{}", limit=limit, resend=resend)


def answering(*answers: bytes, close_after: int = 10**9) -> Handler:
    """Gives the next answer to each request of a connection, and closes it after so many."""
    left = list(answers)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for count in range(close_after):
            head = await reader.readuntil(b"\r\n\r\n")
            if not head:
                return
            await reader.readexactly(2)
            if not left:
                break
            writer.write(left.pop(0))
            if count + 1 == close_after:
                break
        writer.close()

    async def quietly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handle(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    return quietly


async def test_a_connection_is_used_again(upstream: Upstream) -> None:
    async with serving(answering(OK, OK, OK)) as endpoint:
        assert [(await fetch(upstream, endpoint)).body for _ in range(3)] == [b"ok"] * 3
        assert upstream.open_connections == upstream.idle_connections == 1


@pytest.mark.parametrize("resend", [True, False])
async def test_a_request_that_meets_a_stale_connection_is_sent_again_only_where_that_is_safe(
    upstream: Upstream, resend: bool
) -> None:
    sent = 0

    async def closing_on_the_second(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n{}")
        sent += 1
        writer.write(OK)
        if sent == 1:
            await reader.readuntil(
                b"\r\n\r\n{}"
            )  # as a server whose idle timer went off while the request was on its way
        writer.close()

    async with serving(closing_on_the_second) as endpoint:
        await fetch(upstream, endpoint)
        if resend:
            assert (await fetch(upstream, endpoint, resend=True)).body == b"ok"
        else:
            with pytest.raises(ConnectionCutError) as cut:
                await fetch(upstream, endpoint, resend=False)
            assert cut.value.stale


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", ConnectionCutError),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n", ConnectionCutError),
        (b"HTTP/1.1 200 OK\r\n\r\nno length, so its end cannot be told", ConnectionCutError),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", BadFramingError),
        (b"SSH-2.0-OpenSSH\r\n", BadFramingError),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
            (BadFramingError, ConnectionCutError),
        ),
        (b"", ConnectionCutError),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2000\r\n\r\n" + b"x" * 2000, AnswerTooLargeError),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_an_answer_that_is_not_whole_is_an_error(
    upstream: Upstream, answer: bytes, error: type[Exception]
) -> None:
    async with serving(answering(answer, close_after=1)) as endpoint:
        with pytest.raises(error):
            await fetch(upstream, endpoint)
        await until(lambda: not upstream.open_connections)


@pytest.mark.parametrize("at", [1, 12, len(OK) - 2, len(OK) - 1])
async def test_where_the_reads_of_an_answer_end_changes_nothing(upstream: Upstream, at: int) -> None:
    async def in_two(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await reader.readuntil(b"\r\n\r\n{}")
            writer.write(OK[:at])
            await asyncio.sleep(0.002)
            writer.write(OK[at:])
            await reader.readuntil(b"\r\n\r\n{}")
            writer.write(OK)
        writer.close()

    async with serving(in_two) as endpoint:
        replies = [await fetch(upstream, endpoint, resend=False) for _ in range(4)]
        assert [(reply.status, reply.body) for reply in replies] == [(200, b"ok")] * 4


async def test_preliminary_answers_are_skipped(upstream: Upstream) -> None:
    async with serving(answering(b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\n" + OK)) as endpoint:
        reply = await fetch(upstream, endpoint)
        assert (reply.status, reply.body) == (200, b"ok")


async def test_a_connection_that_the_engine_wants_closed_is_not_kept(upstream: Upstream) -> None:
    closing = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    async with serving(answering(closing, close_after=1)) as endpoint:
        await fetch(upstream, endpoint)
        await until(lambda: not upstream.open_connections)


async def test_a_cancelled_request_closes_its_connection(upstream: Upstream) -> None:
    left = asyncio.Event()

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        left.set()
        writer.close()

    async with serving(never) as endpoint:
        task = asyncio.ensure_future(fetch(upstream, endpoint))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait_for(left.wait(), 2)
        await until(lambda: not upstream.open_connections)  # the pump hears of it before we do
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_nobody_listening_is_told_apart_from_a_cut(upstream: Upstream) -> None:
    with pytest.raises(ConnectFailedError):
        await fetch(upstream, Endpoint("u", "n", "127.0.0.1", 9, "prefill", "f"))


class Pausing:
    """A sink whose client is slow: it pauses the connection with all that it gets."""

    def __init__(self) -> None:
        self.ended = asyncio.get_running_loop().create_future()
        self.feed: Connection | None = None

    def on_head(self, status: int) -> None: ...

    def on_data(self, data: bytes) -> None:
        assert self.feed is not None
        self.feed.pause()

    def on_whole(self, status: int, body: bytes) -> None:
        del status
        self.on_data(body)
        self.on_end()

    def on_end(self) -> None:
        self.ended.set_result(None)

    def on_lost(self, error: UpstreamError) -> None:
        self.ended.set_exception(error)


async def test_a_slow_client_of_one_answer_does_not_hold_back_the_next_on_its_connection(upstream: Upstream) -> None:
    async with serving(answering(OK, OK)) as endpoint:
        slow = Pausing()
        slow.feed = await upstream.start(endpoint, "/x", {}, b"{}", slow)
        await asyncio.wait_for(slow.ended, 2)
        assert upstream.idle_connections == 1
        async with asyncio.timeout(2):
            assert (await fetch(upstream, endpoint, resend=False)).body == b"ok"
        assert upstream.open_connections == 1
