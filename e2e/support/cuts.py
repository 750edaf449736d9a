"""TCP proxies in front of engines that break a chosen request's answer off after a chosen number of events.

A request is chosen by its ``x-request-id``, which the router passes on to both legs. Everything else passes unread.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import defaultdict, deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

_REQUEST_ID = re.compile(rb"\r\nx-request-id: ([^\r\n]+)\r\n", re.IGNORECASE)
_EVENT_END = b"\n\n"


class CutPlan:
    """For each request id, after how many events each of its decode legs is cut, in order. Used by one event loop."""

    def __init__(self) -> None:
        self._cuts: dict[str, deque[int]] = defaultdict(deque)
        self._lock = threading.Lock()
        self.done = 0  # connections cut so far

    def plan(self, request_id: str, events: Iterable[int]) -> None:
        """Cut the first decode leg after the first number of events, the next one after the second, and so on."""
        with self._lock:
            self._cuts[request_id].extend(events)

    def next_of(self, request_id: str) -> int | None:
        """After how many events the leg that now begins is cut; ``None``: never."""
        with self._lock:
            cuts = self._cuts.get(request_id)
            return cuts.popleft() if cuts else None


@dataclass
class _Connection:
    """What one connection's two directions know of each other."""

    left: int | None = None  # events until the cut
    seen: bytes = field(default=b"", repr=False)  # the end of the last read, where an event's end may begin


class CuttingProxy:
    """Listens on a port of its own and forwards to ``target`` on loopback; runs in the thread of :class:`Proxies`."""

    def __init__(self, plan: CutPlan) -> None:
        self._plan = plan
        self.target = 0
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Listen no more."""
        self._server.close()

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            engine, to_engine = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            to_client.transport.abort()
            return
        connection = _Connection()
        with suppress(OSError):
            await asyncio.gather(
                self._requests(client, to_engine, connection), self._answers(engine, to_client, to_engine, connection)
            )

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: _Connection
    ) -> None:
        try:
            while data := await reader.read(1 << 16):
                if found := _REQUEST_ID.search(data):
                    connection.left = self._plan.next_of(found[1].decode("latin-1"))
                    connection.seen = b""
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()

    async def _answers(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        to_engine: asyncio.StreamWriter,
        connection: _Connection,
    ) -> None:
        try:
            while data := await reader.read(1 << 16):
                passed, cut = _until_cut(data, connection)
                writer.write(passed)
                await writer.drain()
                if cut:
                    self._plan.done += 1
                    to_engine.transport.abort()
                    return
        finally:
            writer.close()


def _until_cut(data: bytes, connection: _Connection) -> tuple[bytes, bool]:
    """(what still passes, whether the connection is cut after it)."""
    if connection.left is None:
        return data, False
    if connection.left == 0:
        return b"", True
    text = connection.seen + data
    position = 0
    while (end := text.find(_EVENT_END, position)) >= 0:
        position = end + len(_EVENT_END)
        connection.left -= 1
        if connection.left == 0:
            return data[: position - len(connection.seen)], True
    connection.seen = text[max(position, len(text) - 1) :]
    return data, False


class Proxies:
    """An event loop in a thread of its own, for any number of proxies with one plan."""

    def __init__(self) -> None:
        self.plan = CutPlan()
        self._made: list[CuttingProxy] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)

    def make(self, *, cuts: bool) -> CuttingProxy:
        """A started proxy, with ``cuts`` under the plan; set its ``target`` before anyone connects."""
        proxy = CuttingProxy(self.plan if cuts else CutPlan())
        asyncio.run_coroutine_threadsafe(proxy.start(), self._loop).result(timeout=10)
        self._made.append(proxy)
        return proxy

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close_all(), self._loop).result(timeout=10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        self._loop.close()

    async def _close_all(self) -> None:
        for proxy in self._made:
            proxy.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.1)  # transports close in the loop's next rounds
