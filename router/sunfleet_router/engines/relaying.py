"""A connection to an engine on the pump, which moves a decode stream's events to the client without Python.

The first read of a stream comes to Python as all do, and the pump holds the next one back until it is clear what
becomes of the stream: handed over when its client is on the pump too and the read ended between two chunks, as it does
where an engine writes an event with each; else it goes on as on any connection. The pump gives back what the stream's
relay would know: progress lines and the last events.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import httptools

from sunfleet_router.engines.relay import Relay
from sunfleet_router.transport.connection import BadFramingError, Connection, Sink, UpstreamError

if TYPE_CHECKING:
    from sunfleet_router._pump import Transport
    from sunfleet_router.transport.connection import Client


class RelayingConnection(Connection):
    """As :class:`Connection`, and :meth:`hand_over`."""

    __slots__ = ("_between", "_clean", "_moved", "_stepping")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._between = False  # two chunks
        self._clean = False  # the last read ended there
        self._stepping = False
        self._moved: Relay | None = None  # by the pump at present

    def send(self, head: bytes, body: bytes, sink: Sink) -> None:
        if isinstance(sink, Relay) and sink.may_be_moved and self._transport is not None:
            self._stepping, self._between = True, False
            self._pump.step()
        super().send(head, body, sink)

    def data_received(self, data: bytes) -> None:
        sink = self._sink
        super().data_received(data)
        if not self._stepping or not isinstance(sink, Relay) or self._transport is None:
            return
        if self._sink is None:  # the whole stream came at once
            self._stepping = False
            self._pump.run()
        elif sink.opened.done():
            self._clean = self._between and data.endswith(b"\r\n")
        else:
            self._pump.next()

    def hand_over(self, sink: Sink, client: Client | None) -> None:
        # A stream that came at once is over, and the connection serves another one by now.
        if sink is not self._sink or not self._stepping or self._transport is None:
            return
        self._stepping = False
        if client is None or not isinstance(sink, Relay) or sink.closed.done() or not self._clean:
            self._pump.run()
        elif self._pump.relay(*client, sink.begun, sink.awaited):
            self._moved = sink
            self._keep_alive = self._parser.should_keep_alive()
            sink.moved(self._pump.activity)

    def abort(self) -> None:
        self._take_back()
        super().abort()

    # told by the pump

    def further(self) -> None:
        """As many tokens were told as were awaited when the stream was handed over."""
        if self._moved is not None:
            self._moved.go_further()

    def relayed(self, outcome: str, rest: bytes) -> None:
        """How the stream ended; ``rest`` is the engine's error event, or what came after the answer's end."""
        relay = self._take_back()
        if relay is None:
            return  # given up meanwhile
        if outcome == "complete":
            self._parser = httptools.HttpResponseParser(self)
            self._keep_alive = self._keep_alive and not rest
            self._free()
            relay.on_end()
        elif outcome == "engine_ended":
            relay.ended_by_engine(rest)
        elif outcome != "cut":  # else the connection's loss follows
            self._fail(BadFramingError(f"the stream is {outcome.replace('_', ' ')}"))

    # internals

    @property
    def _pump(self) -> Transport:
        return cast("Transport", self._transport)

    def _fail(self, error: UpstreamError) -> None:
        self._take_back()
        super()._fail(error)

    def _take_back(self) -> Relay | None:
        relay, self._moved = self._moved, None
        if relay is not None:
            relay.taken_back(*(self._pump.collect() or (b"", b"", 0.0)))
        return relay

    # httptools callbacks

    def on_chunk_header(self) -> None:
        self._between = False

    def on_chunk_complete(self) -> None:
        self._between = True
