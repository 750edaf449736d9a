"""The stream's two ends: no task per token, back-pressure instead of memory, whole events only."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from sunfleet_router.engines.relay import ClientStream, EngineEndedError, Relay
from sunfleet_router.transport.connection import ConnectionCutError


class Client:
    """An ASGI ``send`` whose socket can be full; also the connection that feeds the stream."""

    def __init__(self) -> None:
        self.writable = asyncio.Event()
        self.writable.set()
        self.got: list[bytes] = []
        self.ended = False
        self.paused = 0
        self.resumed = 0

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if not self.writable.is_set():
            await self.writable.wait()
        self.got.append(message["body"])
        self.ended = not message["more_body"]

    def pause(self) -> None:
        self.paused += 1

    def resume(self) -> None:
        self.resumed += 1


@pytest.fixture
async def client() -> Client:
    return Client()


async def test_a_push_to_a_willing_client_is_sent_before_it_returns(client: Client) -> None:
    stream = ClientStream(client.send)
    for number in range(3):
        stream.push(b"%d" % number)
    assert client.got == [b"0", b"1", b"2"]
    assert not stream.blocked
    await stream.finish(b"end")
    assert (client.got[-1], client.ended) == (b"end", True)


async def test_a_full_socket_pauses_the_engine_and_nothing_is_lost_or_reordered(client: Client) -> None:
    stream = ClientStream(client.send)
    stream.attach(client)
    client.writable.clear()
    for number in range(5):
        stream.push(b"%d" % number)
    assert (client.got, client.paused, client.resumed, stream.blocked) == ([], 1, 0, True)
    finishing = asyncio.ensure_future(stream.finish(b"!"))
    await asyncio.sleep(0.01)
    assert not finishing.done()
    client.writable.set()
    await finishing
    assert b"".join(client.got) == b"01234!"
    assert (client.paused, client.resumed, client.ended) == (1, 1, True)


async def test_a_client_that_leaves_while_its_socket_is_full_takes_the_rest_with_it(client: Client) -> None:
    stream = ClientStream(client.send)
    stream.attach(client)
    client.writable.clear()
    stream.push(b"a")
    stream.abandon()
    await asyncio.sleep(0.01)
    assert (stream.blocked, client.got) == (False, [])


def opened_relay() -> Relay:
    relay = Relay(asyncio.get_running_loop())
    relay.on_head(200)
    return relay


async def test_what_came_early_goes_first_and_half_an_event_never_goes(client: Client) -> None:
    relay, stream = opened_relay(), ClientStream(client.send)
    relay.on_data(b"data: 1")
    assert not relay.opened.done()
    relay.on_data(b"\n\ndata: 2\n\ndata: 3")
    assert relay.opened.done()
    relay.flow_to(stream)
    relay.on_data(b"\n\ndata: cut")
    relay.on_lost(ConnectionCutError("x"))
    assert b"".join(client.got) == b"data: 1\n\ndata: 2\n\ndata: 3\n\n"
    assert isinstance(relay.closed.exception(), ConnectionCutError)


@pytest.mark.parametrize(
    ("last", "whole"), [(b"data: [DONE]\n\n", True), (b": sun \ndata: [DONE]\n\n", True), (b"data: 1\n\n", False)]
)
async def test_an_end_counts_only_after_a_last_event(client: Client, last: bytes, whole: bool) -> None:
    relay = opened_relay()
    relay.flow_to(ClientStream(client.send))
    relay.on_data(last)
    relay.on_end()
    assert (relay.closed.exception() is None) == whole


async def test_an_answer_that_is_no_stream_is_kept_whole() -> None:
    relay = Relay(asyncio.get_running_loop())
    relay.on_head(503)
    relay.on_data(b'{"error":')
    assert not relay.opened.done()
    relay.on_data(b" {}}")
    relay.on_end()
    assert (relay.opened.done(), relay.early, relay.closed.exception()) == (True, b'{"error": {}}', None)


@pytest.mark.parametrize("cuts", [1, 7, 1000])
async def test_what_the_engine_says_to_the_router_alone_never_reaches_the_client(client: Client, cuts: int) -> None:
    relay = opened_relay()
    relay.flow_to(ClientStream(client.send))
    raw = b': sun 1\ndata: a\n\ndata: b\n\n: sun 2,3\ndata: c\n\n: sun \ndata: {"error": {}}\n\ndata: [DONE]\n\n'
    for at in range(0, len(raw), cuts):
        relay.on_data(raw[at : at + cuts])
    assert b"".join(client.got) == b"data: a\n\ndata: b\n\ndata: c\n\n"
    assert relay.lines.splitlines()[:2] == [b": sun 1", b": sun 2,3"]
    assert isinstance(relay.closed.exception(), EngineEndedError)
    assert relay.last_event == b"data: c"


async def test_a_client_that_is_slow_holds_back_the_next_engine_too(client: Client) -> None:
    stream = ClientStream(client.send)
    stream.attach(client)
    client.writable.clear()
    stream.push(b"a")
    another = Client()
    stream.attach(another)
    assert (another.paused, another.resumed) == (1, 0)
    client.writable.set()
    await stream.finish()
    assert (another.resumed, client.resumed) == (1, 0)


async def test_a_client_that_was_slow_at_the_end_does_not_wake_the_connections_next_answer(client: Client) -> None:
    relay, stream = opened_relay(), ClientStream(client.send)
    stream.attach(client)
    relay.flow_to(stream)
    client.writable.clear()
    relay.on_data(b"data: [DONE]\n\n")
    relay.on_end()
    client.writable.set()
    await stream.finish()
    assert (client.paused, client.resumed, client.ended) == (1, 0, True)
