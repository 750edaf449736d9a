"""Run the fake hub: in a thread of a test, or as a program with sample repositories."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import uvicorn

from sunfleet_fakes.hub.app import Hub, create_app
from sunfleet_fakes.hub.repositories import Repository, Visibility

_STOP_SECONDS = 10


class FakeHub:
    """A hub on a free port of this machine, in a thread. ``state`` is live."""

    def __init__(self) -> None:
        self.state = Hub()
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen()
        config = uvicorn.Config(create_app(self.state), log_level="critical", lifespan="off", ws="none")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)

    @property
    def url(self) -> str:
        """For ``HF_ENDPOINT``."""
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def commit(
        self, name: str, files: Mapping[str, bytes], *, branch: str = "main", visibility: Visibility = "public"
    ) -> str:
        """Publish these files as a new commit of a repository; its id."""
        repository = self.state.repositories.setdefault(name, Repository())
        repository.visibility = visibility
        return repository.commit(files, branch)

    def downloads(self, path: str) -> list[str]:
        """The ranges of every download of a file so far, empty for whole ones."""
        return [span for method, url, span in self.state.requests if method == "GET" and url.endswith(f"/{path}")]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = self._server.force_exit = True  # answers may be waiting on purpose
        self._thread.join(_STOP_SECONDS)
        self._socket.close()
