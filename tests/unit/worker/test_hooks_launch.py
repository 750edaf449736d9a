"""How the process of an engine pod ends, with a stand-in for the stock server."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from sunfleet_worker import launch


async def _nothing(*_: Any, **__: Any) -> None: ...


async def _waits(*_: Any, **__: Any) -> None:
    await asyncio.Event().wait()


async def _fails(*_: Any, **__: Any) -> None:
    raise RuntimeError("never exact")


async def _until_interrupted(app: Any, **_: Any) -> Awaitable[None]:
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, ended.set)
    app.state.server = SimpleNamespace(started=True)
    await ended.wait()
    return _nothing()


async def _terminated(app: Any, **_: Any) -> Awaitable[None]:
    serving = asyncio.create_task(_until_interrupted(app))
    await asyncio.sleep(0.2)  # until SIGTERM is taken over
    signal.raise_signal(signal.SIGTERM)
    return await serving


async def _dies(app: Any, **_: Any) -> Awaitable[None]:
    app.state.server = SimpleNamespace(started=True)
    await asyncio.sleep(0.1)
    return _nothing()


@pytest.mark.parametrize(
    ("serve", "prove", "code"),
    [(_terminated, _waits, 0), (_until_interrupted, _fails, 1), (_dies, _waits, 1)],
    ids=["a drain", "a self-check that fails", "an engine that dies"],
)
def test_the_exit_code_says_whether_the_end_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, serve: Callable[..., Any], prove: Callable[..., Any], code: int
) -> None:
    app: Any = SimpleNamespace(state=SimpleNamespace())

    async def application(*_: Any) -> tuple[Any, None]:
        return app, None

    socket = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr(launch, "setup_server", lambda *_, **__: (None, socket))
    monkeypatch.setattr(launch, "_application", application)
    monkeypatch.setattr(launch, "_http_options", lambda _: {})
    for name in ("install", "Pod"):
        monkeypatch.setattr(launch, name, lambda *_: None)
    monkeypatch.setattr(launch, "serve_http", serve)
    monkeypatch.setattr(launch, "_prove", prove)
    monkeypatch.setattr(launch, "drain", _nothing)
    engine: Any = SimpleNamespace(reset_mm_cache=_nothing)
    settings: Any = SimpleNamespace(metrics_port=0, adapters_path="", drain_timeout_seconds=1)
    unused: Any = None
    assert uvloop.run(launch._serve(engine, unused, settings, unused)) == code
