"""Connections whose sockets a native thread reads and writes (``router/native``), beside the interpreter.

To protocols a :class:`Transport` is what asyncio's are. TLS stays with asyncio: its records need what the pump has not.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final, cast

from sunfleet_router.settings import ConfigError
from sunfleet_router.transport.sockets import BACKLOG, AsyncioSockets, Listening, P, Sockets, Tls

try:
    from sunfleet_router._pump import Core, Transport, keep_memory
except ImportError:  # not built: asyncio's sockets do the same, with more of the interpreter's time
    Core = Transport = keep_memory = None  # type: ignore[assignment,misc]

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 64  # connections taken before others have their turn
_PAUSE: Final = 0.5  # seconds without a look for new connections when none can be taken

BUILT: Final = Core is not None


def choose(wanted: str) -> Sockets:
    """``auto``, ``native`` or ``asyncio``; raises :class:`ConfigError` when what is wanted is not there. Must be
    called inside the event loop.
    """
    if wanted == "native" and not BUILT:
        raise ConfigError(
            "SUNFLEET_ROUTER_SOCKETS is native, but the native module is not built: run python router/native/build.py "
            "router/sunfleet_router (it needs gcc and python3-dev), or leave the setting out."
        )
    return PumpSockets() if BUILT and wanted != "asyncio" else AsyncioSockets()


def keep_freed_memory() -> None:
    """Have the process keep the memory of one request for the next, if that can be said."""
    if BUILT:
        keep_memory()


def on_pump(transport: object) -> Transport | None:
    """``transport``, if it is the pump's."""
    return transport if BUILT and isinstance(transport, Transport) else None


class PumpSockets:
    """One for an event loop."""

    relays = True

    def __init__(self) -> None:
        self._core = Core()
        self._loop = asyncio.get_running_loop()
        self._asyncio = AsyncioSockets()
        self._loop.add_reader(self._core.fileno(), self._core.drain)
        self._open = True

    async def listen(
        self, make: Callable[[], asyncio.Protocol], host: str, port: int, listener: socket.socket | None,
        tls: ssl.SSLContext | None,
    ) -> Listening:  # fmt: skip
        if tls is not None:
            return await self._asyncio.listen(make, host, port, listener, tls)
        return _Port(self._loop, listener or _bind(host, port), lambda one: self._adopt(one, make()))

    async def connect(self, make: Callable[[], P], host: str, port: int, tls: Tls | None) -> P:
        if tls is not None:
            return await self._asyncio.connect(make, host, port, tls)
        last: OSError | None = None
        for family, kind, number, _, address in await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            one = socket.socket(family, kind, number)
            one.setblocking(False)
            try:
                await self._loop.sock_connect(one, address)
            except OSError as error:
                one.close()
                last = error
            except BaseException:
                one.close()
                raise
            else:
                return self._adopt(one, make())
        raise last or OSError("the name has no address")

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._core.fileno())
            self._core.close()

    def _adopt(self, one: socket.socket, protocol: P) -> P:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport = self._core.adopt(one.detach(), protocol)
        protocol.connection_made(cast("asyncio.Transport", transport))  # one by shape
        return protocol


class _Port:
    """A listening socket whose connections go to ``take``."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, listener: socket.socket, take: Callable[[socket.socket], object]
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._take = take
        self._pause: asyncio.TimerHandle | None = None
        self.sockets = [listener]
        listener.setblocking(False)
        listener.listen(BACKLOG)
        loop.add_reader(listener.fileno(), self._accept)

    def close(self) -> None:
        if self._listener.fileno() < 0:
            return
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                one, _ = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError as error:  # no file descriptors: those that are open may end meanwhile
                logger.warning("no connection can be taken: %s", error.strerror)
                self._loop.remove_reader(self._listener.fileno())
                self._pause = self._loop.call_later(_PAUSE, self._go_on)
                return
            one.setblocking(False)
            self._take(one)

    def _go_on(self) -> None:
        self._loop.add_reader(self._listener.fileno(), self._accept)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG, dualstack_ipv6=host == "::")
