"""Where the process's connections come from: asyncio's own sockets here, the native pump's in
:mod:`sunfleet_router.transport.pump`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

BACKLOG: Final = 4096

P = TypeVar("P", bound=asyncio.Protocol)


@dataclass(frozen=True, slots=True)
class Tls:
    """Of a connection to an engine."""

    context: ssl.SSLContext
    name: str  # in the engine's certificate


class Listening(Protocol):
    """An open port."""

    @property
    def sockets(self) -> Sequence[object]: ...

    def close(self) -> None:
        """Take no more connections; those that there are stay."""


class Sockets(Protocol):
    """One per process."""

    @property
    def relays(self) -> bool:
        """Whether a stream can be moved between two plain connections without Python."""

    async def listen(
        self, make: Callable[[], asyncio.Protocol], host: str, port: int, listener: socket.socket | None,
        tls: ssl.SSLContext | None,
    ) -> Listening:  # fmt: skip
        """Serve ``host`` and ``port``, or ``listener`` if it is given, each connection by a protocol of its own."""

    async def connect(self, make: Callable[[], P], host: str, port: int, tls: Tls | None) -> P:
        """A connection; raises :class:`OSError`."""

    def close(self) -> None:
        """End what runs beside the event loop."""


class AsyncioSockets:
    """The event loop's."""

    relays = False

    async def listen(
        self, make: Callable[[], asyncio.Protocol], host: str, port: int, listener: socket.socket | None,
        tls: ssl.SSLContext | None,
    ) -> asyncio.Server:  # fmt: skip
        loop = asyncio.get_running_loop()
        if listener is not None:
            return await loop.create_server(make, sock=listener, backlog=BACKLOG, ssl=tls)
        return await loop.create_server(make, host, port, backlog=BACKLOG, ssl=tls)

    async def connect(self, make: Callable[[], P], host: str, port: int, tls: Tls | None) -> P:
        loop = asyncio.get_running_loop()
        if tls is None:
            return (await loop.create_connection(make, host, port))[1]
        return (await loop.create_connection(make, host, port, ssl=tls.context, server_hostname=tls.name))[1]

    def close(self) -> None: ...
