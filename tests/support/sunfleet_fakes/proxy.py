"""A fake HTTP proxy that takes every host for one server of this machine, so that names need not exist."""

from __future__ import annotations

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class FakeProxy:
    """Passes requests for any host on to ``target`` (address and port); ``hosts`` are those that were asked for."""

    def __init__(self, target: str) -> None:
        self.hosts: list[str] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked = urlsplit(self.path)
                proxy.hosts.append(asked.netloc)
                connection = http.client.HTTPConnection(target, timeout=10)
                path = asked.path + (f"?{asked.query}" if asked.query else "")
                connection.request(self.command, path, headers=dict(self.headers.items()))
                answer = connection.getresponse()
                content = answer.read()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in {"transfer-encoding", "connection"}:
                        self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)
                connection.close()

            do_HEAD = do_GET  # noqa: N815 - the base's name

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """For ``HTTP_PROXY``."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)
