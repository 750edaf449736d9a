"""The network between a process and the API server, with the faults of a real one: silence instead of an error."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field

_CHUNK = 65536


@dataclass
class Link:
    """Forwards TCP from ``port`` on loopback to ``target``.

    A connection that was open when the link fell silent, or that is made while it is cut, never hears anything again:
    neither an answer nor that it is dead, as behind a load balancer that forgot it.
    """

    target: int
    port: int = 0
    cut: bool = False
    _silent: set[int] = field(default_factory=set)
    _open: dict[int, tuple[socket.socket, ...]] = field(default_factory=dict)
    _server: socket.socket = field(init=False)

    def __enter__(self) -> Link:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        for sockets in list(self._open.values()):
            for one in sockets:
                one.close()

    def silence(self) -> None:
        """Every connection of now goes silent; new ones work."""
        self._silent |= self._open.keys()

    def sever(self) -> None:
        """Nothing passes any more, over old and new connections, until :meth:`mend`."""
        self.cut = True
        self.silence()

    def mend(self) -> None:
        """New connections work again."""
        self.cut = False

    def _accept(self) -> None:
        number = 0
        with suppress(OSError):  # closed at the end
            while True:
                near, _ = self._server.accept()
                number += 1
                self._connect(number, near)

    def _connect(self, number: int, near: socket.socket) -> None:
        if self.cut:
            self._open[number] = (near,)
            return
        far = socket.create_connection(("127.0.0.1", self.target))
        self._open[number] = (near, far)
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=self._pump, args=(number, source, sink), daemon=True).start()

    def _pump(self, number: int, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                if number not in self._silent:
                    sink.sendall(data)
            if number not in self._silent:
                sink.shutdown(socket.SHUT_WR)
