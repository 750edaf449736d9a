"""Routers and engines for the router's tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import pytest
import uvloop

from sunfleet_fakes.harness import FakeEngine
from sunfleet_router.transport import pump
from sunfleet_router.transport.sockets import Sockets
from sunfleet_router_harness import FINGERPRINT, Engines, Router, RouterFactory

KINDS = ("native", "asyncio") if pump.BUILT else ("asyncio",)  # that it is built is a test of its own
# Modules whose tests run on both kinds of sockets; the others take what the product would.
ON_BOTH = {"test_front", "test_upstream", "test_resume", "test_leaving", "test_faults", "test_timeouts"}


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that the product runs on."""
    return {"uvloop": uvloop.new_event_loop}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "sockets_kind" in metafunc.fixturenames and Path(metafunc.module.__file__ or "").stem in ON_BOTH:
        metafunc.parametrize("sockets_kind", KINDS, indirect=True)


@pytest.fixture(scope="session")
def engine_processes() -> Iterator[Engines]:
    with ExitStack() as stack:

        def start(role: Any, identity: str) -> FakeEngine:
            engine = FakeEngine(role, identity=identity, kv_fingerprint=FINGERPRINT, max_model_len=2048)
            return stack.enter_context(engine)

        yield Engines(
            start("prefill", "maths"), start("prefill", "maths"), start("prefill", "code"),
            start("decode", "base"), start("decode", "base"),
        )  # fmt: skip


@pytest.fixture
def engines(engine_processes: Engines) -> Engines:
    for engine in engine_processes.all():
        engine.reset()
    return engine_processes


@pytest.fixture
def sockets_kind(request: pytest.FixtureRequest) -> str:
    """The router's ``sockets``."""
    return str(getattr(request, "param", "auto"))


@pytest.fixture
async def sockets(sockets_kind: str) -> AsyncIterator[Sockets]:
    chosen = pump.choose(sockets_kind)
    yield chosen
    chosen.close()


@pytest.fixture
async def start_router(engines: Engines, tmp_path: Path, sockets_kind: str) -> AsyncIterator[RouterFactory]:
    async with AsyncExitStack() as stack:
        factory = RouterFactory(engines, tmp_path, stack, sockets_kind)
        yield factory
        for router in factory.running:
            if not router.task.done():
                await router.settled()
            router.stop.set()
            await router.task


@pytest.fixture
async def router(start_router: RouterFactory) -> Router:
    return await start_router()
