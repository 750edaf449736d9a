"""The clocks of a request's phases, and what counts as a failure of which pod."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from sunfleet_router import verdict
from sunfleet_router.connection import UpstreamError
from sunfleet_router.errors import LegFailedError, PhaseTimeoutError
from sunfleet_router.relay import ClientStream, Relay
from sunfleet_router.snapshot import Endpoint


@contextmanager
def blame(pod: Endpoint) -> Iterator[None]:
    """Note on a failure of a leg whose it was."""
    try:
        yield
    except (LegFailedError, PhaseTimeoutError) as failure:
        failure.pod = pod.uid
        raise


@asynccontextmanager
async def phase(name: str, seconds: float, deadline: float) -> AsyncIterator[None]:
    """At most ``seconds``, and not beyond ``deadline`` (the loop's time); raises :class:`PhaseTimeoutError` with the
    phase.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with asyncio.timeout_at(min(began + seconds, deadline)):
            yield
    except TimeoutError:
        if began + seconds > deadline:
            raise PhaseTimeoutError("request", deadline - began) from None
        raise PhaseTimeoutError(name, seconds) from None


def check_opening(relay: Relay) -> None:
    """Judge what a decode pod began with, before the client gets any of it; raises unless it is at least one event of a
    stream of tokens.
    """
    if relay.status not in (0, 200):
        raise verdict.of_answer("decode", relay.status, relay.early)
    error = relay.closed.exception() if relay.closed.done() else None
    if isinstance(error, UpstreamError) and not relay.early:
        raise verdict.of_exchange("decode", error) from error


async def until_closed(
    relay: Relay, client: ClientStream, inter_token: float, deadline: float, total: float
) -> BaseException | None:
    """Wait for the stream's end, and return what broke it off, if anything; no timer runs per token.

    Raises :class:`PhaseTimeoutError` when it fell silent, which does not count while the client is the slow one.
    """
    loop = asyncio.get_running_loop()
    while not relay.closed.done():
        now = loop.time()
        if now >= deadline:
            raise PhaseTimeoutError("request", total)
        if client.blocked:
            relay.last_activity = now
        silent_at = relay.last_activity + inter_token
        if now >= silent_at:
            raise PhaseTimeoutError("inter_token", inter_token)
        await asyncio.wait((relay.closed,), timeout=min(silent_at, deadline) - now)
    return relay.closed.exception()
