"""The native pump: bytes in order, back-pressure, ends; and it moves a stream exactly as the relay in Python does."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sunfleet_router.engines.relay import ClientStream, EngineEndedError, Relay
from sunfleet_router.engines.relaying import RelayingConnection
from sunfleet_router.settings import ConfigError
from sunfleet_router.transport import pump
from sunfleet_router.transport.connection import Connection, UpstreamError
from sunfleet_router.transport.exchange import Exchange, Inbox
from sunfleet_router.transport.pump import PumpSockets
from sunfleet_router.transport.sockets import AsyncioSockets

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"


class Heard(asyncio.Protocol):
    """What a connection is told."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.data = bytearray()
        self.told: list[str] = []
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    def connection_lost(self, _: Exception | None) -> None:
        self.lost.set_result(None)


@pytest.fixture
async def pumped() -> AsyncIterator[PumpSockets]:
    sockets = PumpSockets()
    yield sockets
    sockets.close()


def pair(pumped: PumpSockets, protocol: asyncio.Protocol, room: int | None = None) -> socket.socket:
    """The other end of a connection of ``protocol`` on the pump; ``room``: bytes that either end's socket holds."""
    listener, far = socket.create_server(("127.0.0.1", 0)), socket.socket()
    for one in (listener, far) if room else ():
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room or 0)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room or 0)
    far.connect(listener.getsockname())
    near, _ = listener.accept()
    listener.close()
    near.setblocking(False)
    far.setblocking(False)
    pumped._adopt(near, protocol)
    return far


async def until(condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 told by a thread
            await asyncio.sleep(0.001)


async def receive(far: socket.socket, size: int) -> bytes:
    got = b""
    async with asyncio.timeout(5):
        while len(got) < size:
            part = await asyncio.get_running_loop().sock_recv(far, 1 << 20)
            if not part:
                break
            got += part
    return got


def test_the_native_module_is_built() -> None:
    assert pump.BUILT, "run `make venv`, or python router/native/build.py --required router/sunfleet_router"


async def test_settings_choose_and_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(pump.choose("asyncio"), AsyncioSockets)
    native = pump.choose("auto")
    assert isinstance(native, PumpSockets)
    native.close()
    monkeypatch.setattr(pump, "BUILT", False)
    assert isinstance(pump.choose("auto"), AsyncioSockets)
    with pytest.raises(ConfigError, match=r"build\.py"):
        pump.choose("native")


async def test_a_slow_reader_pauses_the_writer_and_gets_every_byte_in_order(pumped: PumpSockets) -> None:
    heard = Heard()
    far = pair(pumped, heard)
    data = random.Random(1).randbytes(8 << 20)  # noqa: S311
    heard.transport.writelines((data[: 1 << 20], data[1 << 20 :]))
    assert heard.told == ["pause"]
    assert await receive(far, len(data)) == data
    await until(lambda: heard.told == ["pause", "resume"])
    far.close()
    await heard.lost


async def test_what_fits_is_in_the_socket_when_the_write_returns(pumped: PumpSockets) -> None:
    heard = Heard()
    far = pair(pumped, heard)
    parts = [b"%d," % number for number in range(20)]  # more than go in one call
    heard.transport.writelines(parts)
    assert far.recv(1 << 10, socket.MSG_DONTWAIT) == b"".join(parts)
    far.close()
    await heard.lost


@pytest.mark.parametrize("seed", range(4))
async def test_bytes_keep_their_order_whoever_writes_them(pumped: PumpSockets, seed: int) -> None:
    chance, heard = random.Random(seed), Heard()  # noqa: S311
    far = pair(pumped, heard)
    sent, got = b"", b""
    for _ in range(200):
        part = chance.randbytes(chance.choice((1, 100, 40_000, 300_000)))
        sent += part
        heard.transport.write(part)
        if chance.random() < 0.7:
            got += await receive(far, min(len(sent) - len(got), chance.choice((1, 50_000, 500_000))))
    assert got + await receive(far, len(sent) - len(got)) == sent
    far.close()
    await heard.lost


async def test_a_protocol_that_pauses_is_not_told_more_until_it_resumes(pumped: PumpSockets) -> None:
    heard = Heard()
    far = pair(pumped, heard)
    heard.transport.pause_reading()
    far.send(b"early")
    await asyncio.sleep(0.02)
    assert not heard.data
    heard.transport.resume_reading()
    await until(lambda: heard.data == b"early")
    heard.transport.step()
    far.send(b"one")
    await until(lambda: heard.data == b"earlyone")
    far.send(b"two")
    await asyncio.sleep(0.02)
    assert heard.data == b"earlyone"
    heard.transport.next()
    await until(lambda: heard.data == b"earlyonetwo")
    far.close()


async def test_close_sends_what_was_written_and_abort_does_not_wait(pumped: PumpSockets) -> None:
    closed, aborted = Heard(), Heard()
    far, other = pair(pumped, closed), pair(pumped, aborted)
    data = b"x" * (4 << 20)
    closed.transport.write(data)
    closed.transport.close()
    closed.transport.write(b"too late")
    assert closed.transport.is_closing()
    assert await receive(far, len(data) + 1) == data
    await closed.lost
    aborted.transport.write(data)
    aborted.transport.abort()
    await aborted.lost
    for one in (far, other):
        one.close()


async def test_a_pump_that_is_closed_ends_what_is_open() -> None:
    sockets, heard = PumpSockets(), Heard()
    far = pair(sockets, heard)
    sockets.close()
    await heard.lost
    assert await receive(far, 1) == b""
    heard.transport.write(b"nobody")
    sockets.close()
    far.close()


# The relay in Python and the pump's side by side


class Wire:
    """A client's connection that the pump has."""

    blocked = False

    def __init__(self, transport: Any) -> None:
        self.pump = transport

    def put(self, data: bytes) -> None:
        self.pump.write(data)

    def finished(self, *, keep: bool) -> None: ...

    def abort(self) -> None: ...


class KeptOpen:
    """A pool that does nothing."""

    def release(self, _: Connection) -> None: ...

    def forget(self, _: Connection) -> None: ...


class Leg:
    """A decode leg on the pump, from an engine that the test plays to a client that it reads."""

    def __init__(self, pumped: PumpSockets, *, old: bool = False, room: int | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.connection = RelayingConnection(loop)
        self.connection.pool = KeptOpen()
        self.engine = pair(pumped, self.connection, room)
        heard = Heard()
        self.client = pair(pumped, heard, room)
        inbox = Inbox()
        inbox.finish()
        exchange = Exchange(Wire(heard.transport), inbox, old=old)
        exchange.begin(200, ())
        self.stream = ClientStream(exchange)
        self.relay = Relay(loop, may_be_moved=True)
        self.connection.send(b"GET / HTTP/1.1\r\n\r\n", b"", self.relay)

    async def begin(self, first: bytes, seeds: int = 0) -> None:
        """Its first events, and then it is handed over; ``seeds`` of its tokens are not the engine's own."""
        self.engine.send(HEAD + first)
        async with asyncio.timeout(5):
            await self.relay.opened
        self.relay.flow_to(self.stream)
        if seeds:
            self.further = self.relay.further(seeds)
        self.connection.hand_over(self.relay, self.stream.on_pump)

    async def body(self) -> bytes:
        """What the client has got, without framing."""
        await asyncio.sleep(0.005)
        head, _, rest = (await asyncio.get_running_loop().sock_recv(self.client, 1 << 20)).partition(b"\r\n\r\n")
        return unchunked(rest) if b"chunked" in head else rest

    def close(self) -> None:
        self.connection.abort()
        self.engine.close()
        self.client.close()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def unchunked(raw: bytes) -> bytes:
    body = b""
    while raw:
        size, _, raw = raw.partition(b"\r\n")
        body, raw = body + raw[: int(size, 16)], raw[int(size, 16) + 2 :]
    return body


def events(body: bytes) -> list[bytes]:
    """Blank lines between events are nothing, and whether they go out depends on where reads end."""
    return [event.strip() for event in body.replace(b"\r", b"").split(b"\n\n") if event.strip()]


async def in_python(parts: list[bytes]) -> tuple[Relay, bytes]:
    """The relay as it is without a pump, fed with these."""
    got = []

    async def send(message: Any) -> None:
        got.append(message["body"])

    relay = Relay(asyncio.get_running_loop())
    relay.on_head(200)
    relay.flow_to(ClientStream(send))
    for part in parts:
        relay.on_data(part)
    return relay, b"".join(got)


PIECES = (
    b": sun 5\ndata: a\n\n", b"data: b\n\n", b": sun 6,7\n: sun 8\ndata: c\n\n", b": ping\n\n",
    b": sun 9\r\ndata: d\r\n\r\n", b'data: {"text": ": sun 5\\n"}\n\n', b"event: x\ndata: y\n\n",
)  # fmt: skip
ENDS = (DONE, b": sun \n" + DONE, b"data: half", b'data: {"error": {"code": "sun_x"}}\n\n' + DONE, b"")


@pytest.mark.parametrize("seed", range(30))
async def test_a_stream_reaches_the_client_as_the_relay_in_python_passes_it_on(pumped: PumpSockets, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    text = b"".join(chance.choices(PIECES, k=chance.randint(0, 12))) + chance.choice(ENDS)
    parts = []
    while text:
        size = chance.choice((1, 2, 3, 9, 40, 400))
        parts.append(text[:size])
        text = text[size:]
    first = b": sun 4\ndata: first\n\n"
    model, wanted = await in_python([first, *parts])
    leg = Leg(pumped, old=seed % 3 == 0)
    await leg.begin(chunk(first))
    raw = b"".join(map(chunk, parts)) + END
    while raw:
        size = chance.choice((1, 5, 50, 5000))
        leg.engine.send(raw[:size])
        raw = raw[size:]
        if chance.random() < 0.3:
            await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await asyncio.wait([leg.relay.closed])
    if not model.closed.done():
        model.on_end()
    assert events(await leg.body()) == events(wanted)
    assert (leg.relay.lines, leg.relay.last_event) == (model.lines, model.last_event)
    mine, theirs = leg.relay.closed.exception(), model.closed.exception()
    assert type(mine) is type(theirs)
    if isinstance(mine, EngineEndedError) and isinstance(theirs, EngineEndedError):
        assert mine.event.startswith(b'data: {"error"')
    leg.close()


async def test_a_relay_that_is_given_up_says_exactly_what_the_client_got(pumped: PumpSockets) -> None:
    leg = Leg(pumped)
    await leg.begin(chunk(b": sun 1\ndata: 1\n\n"))
    for number in range(2, 200):
        leg.engine.send(chunk(b": sun %d\ndata: %d\n\n" % (number, number)))
        if number % 50 == 0:
            await asyncio.sleep(0.001)
    leg.connection.abort()
    told = [int(line.split()[-1]) for line in bytes(leg.relay.lines).splitlines()]
    got = [int(line[6:]) for line in (await leg.body()).split(b"\n\n") if line]
    assert told == got == list(range(1, len(got) + 1))
    leg.close()


@pytest.mark.parametrize(
    ("seeds", "silent", "telling"),
    [
        (1, b"data: held\n\n", b": sun 2\ndata: b\n\n"),
        (2, b": sun 2\ndata: b\n\n", b": sun 3\n: sun 4\ndata: c\n\n"),
        (3, b": sun 2,3\n: sun \ndata: b\n\n", b': sun 4 {"ranks": [1]}\r\ndata: c\n\n'),
        (9, b": sun 2,3\ndata: b\n\n", b": sun what\ndata: c\n\n"),  # a line that cannot be read counts as many
    ],
)
async def test_a_stream_that_was_moved_tells_when_its_engine_has_a_token_of_its_own(
    pumped: PumpSockets, seeds: int, silent: bytes, telling: bytes
) -> None:
    leg = Leg(pumped)
    await leg.begin(chunk(b": sun 1\ndata: a\n\n"), seeds)
    leg.engine.send(chunk(silent))
    await asyncio.sleep(0.02)
    assert not leg.further.done()
    leg.engine.send(chunk(telling))
    async with asyncio.timeout(5):
        await leg.further
    assert not leg.relay.closed.done()
    leg.close()


@pytest.mark.parametrize("bad", [b"zz\r\n", b"5\rdata", b"fffffffff\r\n", b"5\r\ndata:xx"])
async def test_what_is_no_chunk_ends_the_stream_with_an_error(pumped: PumpSockets, bad: bytes) -> None:
    leg = Leg(pumped)
    await leg.begin(chunk(b"data: 1\n\n"))
    leg.engine.send(chunk(b"data: 2\n\n") + bad)
    async with asyncio.timeout(5):
        await asyncio.wait([leg.relay.closed])
    assert isinstance(leg.relay.closed.exception(), UpstreamError)
    assert leg.relay.over
    assert await leg.body() == b"data: 1\n\ndata: 2\n\n"
    leg.close()


async def test_an_engine_that_vanishes_is_a_cut(pumped: PumpSockets) -> None:
    leg = Leg(pumped)
    await leg.begin(chunk(b"data: 1\n\n"))
    leg.engine.send(chunk(b"data: 2\n\n") + b"20\r\ndata: 3")
    await asyncio.sleep(0.005)
    leg.engine.close()
    async with asyncio.timeout(5):
        await asyncio.wait([leg.relay.closed])
    assert isinstance(leg.relay.closed.exception(), UpstreamError)
    assert leg.relay.last_event == b"data: 2"
    leg.close()


async def test_a_connection_serves_another_stream_after_one_that_was_moved_and_one_that_came_at_once(
    pumped: PumpSockets,
) -> None:
    loop, leg = asyncio.get_running_loop(), Leg(pumped)
    await leg.begin(chunk(b"data: 1\n\n"))
    leg.engine.send(chunk(DONE) + END)
    async with asyncio.timeout(5):
        await leg.relay.closed
    at_once = Relay(loop, may_be_moved=True)
    leg.connection.send(b"GET / HTTP/1.1\r\n\r\n", b"", at_once)
    leg.engine.send(HEAD + chunk(b"data: 2\n\n" + DONE) + END)
    async with asyncio.timeout(5):
        await at_once.closed
    later = Relay(loop, may_be_moved=True)
    leg.connection.send(b"GET / HTTP/1.1\r\n\r\n", b"", later)
    leg.engine.send(HEAD + chunk(b"data: 3\n\n"))
    async with asyncio.timeout(5):
        await later.opened
    leg.connection.hand_over(at_once, leg.stream.on_pump)  # its task comes late: the connection is another's by now
    leg.engine.send(chunk(b"data: 4\n\n"))
    await asyncio.sleep(0.02)
    assert await leg.body() == b"data: 1\n\n" + DONE
    leg.close()


async def test_a_client_that_does_not_read_holds_back_an_engine_of_small_events_too(pumped: PumpSockets) -> None:
    leg, event = Leg(pumped, room=8192), chunk(b"data: " + b"x" * 4000 + b"\n\n")
    await leg.begin(chunk(b"data: 1\n\n"))
    sent = refused = 0
    while sent < 1 << 20 and refused < 10:
        try:
            sent += leg.engine.send(event[sent % len(event) :])
        except BlockingIOError:
            refused += 1
        await asyncio.sleep(0.003 if refused else 0)
    assert sent < 1 << 19
    leg.close()


async def test_a_client_that_does_not_read_holds_its_engine_back_and_loses_nothing(pumped: PumpSockets) -> None:
    leg = Leg(pumped)
    await leg.begin(chunk(b"data: 1\n\n"))
    event = chunk(b"data: " + b"x" * 1000 + b"\n\n")
    loop, sent = asyncio.get_running_loop(), 0
    for _ in range(60_000):
        try:
            sent += leg.engine.send(event[sent % len(event) :])
        except BlockingIOError:
            break
    for _ in range(50):  # what both sockets hold, no more
        await asyncio.sleep(0.002)
        try:
            sent += leg.engine.send(event[sent % len(event) :])
        except BlockingIOError:
            break
    assert sent < 40 << 20
    leg.engine.setblocking(False)
    rest = loop.create_task(loop.sock_sendall(leg.engine, event[sent % len(event) :] + chunk(DONE) + END))
    whole = b""
    async with asyncio.timeout(10):
        while not leg.relay.closed.done() or not whole.endswith(DONE + b"\r\n"):
            whole += await loop.sock_recv(leg.client, 1 << 20)
    await rest
    body = unchunked(whole.partition(b"\r\n\r\n")[2])
    assert body.count(b"data: ") == 3 + sent // len(event)
    assert body.endswith(DONE)
    leg.close()
