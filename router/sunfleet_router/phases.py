"""The clocks of a request's phases, and what counts as a failure of which pod."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import NoReturn

from sunfleet_router import verdict
from sunfleet_router.connection import UpstreamError
from sunfleet_router.errors import LegFailedError, PhaseTimeoutError
from sunfleet_router.relay import ClientStream, Relay
from sunfleet_router.snapshot import Endpoint


class blame:  # noqa: N801 reads as the statement that it is
    """Note on a failure of a leg whose it was. A class, as :class:`phase`: every request enters several of them."""

    __slots__ = ("_pod",)

    def __init__(self, pod: Endpoint) -> None:
        self._pod = pod

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(failure, LegFailedError | PhaseTimeoutError):
            failure.pod = self._pod.uid


class phase:  # noqa: N801 as above
    """At most ``seconds``, and not beyond ``deadline`` (the loop's time); raises :class:`PhaseTimeoutError` with the
    phase.
    """

    __slots__ = ("_began", "_deadline", "_limit", "_name", "_seconds")

    def __init__(self, name: str, seconds: float, deadline: float) -> None:
        self._name = name
        self._seconds = seconds
        self._deadline = deadline

    async def __aenter__(self) -> None:
        self._began = asyncio.get_running_loop().time()
        self._limit = asyncio.timeout_at(min(self._began + self._seconds, self._deadline))
        await self._limit.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._limit.__aexit__(kind, failure, traceback)
        except TimeoutError:
            self._raise()
        if isinstance(failure, TimeoutError):
            self._raise()

    def _raise(self) -> NoReturn:
        if self._began + self._seconds > self._deadline:
            raise PhaseTimeoutError("request", self._deadline - self._began) from None
        raise PhaseTimeoutError(self._name, self._seconds) from None


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
