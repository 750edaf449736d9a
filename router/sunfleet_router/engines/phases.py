"""The clocks of a request's phases."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, NoReturn

from sunfleet_router.engines import verdict
from sunfleet_router.engines.relay import ClientStream, Relay
from sunfleet_router.errors import PhaseTimeoutError
from sunfleet_router.transport.connection import UpstreamError


class phase:  # noqa: N801 reads as the statement that it is
    """At most ``seconds``, and not beyond ``deadline`` (the loop's time); raises :class:`PhaseTimeoutError` with the
    phase. As :func:`asyncio.timeout`, whose coroutines and states cost a request more than its placement.

    Where all that is waited for is one future, :meth:`limit` costs less than the context.
    """

    __slots__ = ("_began", "_cancelling", "_deadline", "_late", "_name", "_seconds", "_task", "_timer")

    def __init__(self, name: str, seconds: float, deadline: float) -> None:
        self._name = name
        self._seconds = seconds
        self._deadline = deadline
        self._began: float | None = None  # the loop's time
        self._late = False

    def limit(self, loop: asyncio.AbstractEventLoop, waits: asyncio.Future[Any]) -> asyncio.TimerHandle:
        """Have ``waits`` fail when the time is over, which runs from the first use of this; the caller cancels what it
        gets.
        """
        if self._began is None:
            self._began = loop.time()
        until = self._began + self._seconds
        return loop.call_at(min(self._deadline, until), self._fail, waits)

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None  # noqa: S101 a phase is part of a coroutine
        self._task = task
        self._cancelling = task.cancelling()
        if self._began is None:
            self._began = loop.time()
        until = self._began + self._seconds
        self._timer = loop.call_at(min(until, self._deadline), self._expire)

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._timer.cancel()
        # Only our own cancellation becomes the error, somebody else's stays what it is.
        if self._late and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            self._raise()
        if failure is not None and isinstance(failure, TimeoutError):
            self._raise()

    def _expire(self) -> None:
        self._late = True
        self._task.cancel()

    def _fail(self, waits: asyncio.Future[Any]) -> None:
        if not waits.done():
            waits.set_exception(self._error())
            waits.exception()  # looked at, as in a relay

    def _raise(self) -> NoReturn:
        raise self._error() from None

    def _error(self) -> PhaseTimeoutError:
        began = self._began or 0.0
        if began + self._seconds > self._deadline:
            return PhaseTimeoutError("request", self._deadline - began)
        return PhaseTimeoutError(self._name, self._seconds)


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
    await until(relay.closed, relay, client, "inter_token", inter_token, deadline, total)
    return relay.closed.exception()


async def until(
    done: asyncio.Future[None],
    relay: Relay,
    client: ClientStream,
    name: str,
    silence: float,
    deadline: float,
    total: float,
) -> None:
    """Wait for something in a stream; raises as :func:`until_closed`, with this phase, when that is silent for long."""
    loop = asyncio.get_running_loop()
    while not done.done():
        now = loop.time()
        if now >= deadline:
            raise PhaseTimeoutError("request", total)
        if client.blocked:
            relay.slow_client()
        silent_at = relay.last_activity + silence
        if now >= silent_at:
            raise PhaseTimeoutError(name, silence)
        await asyncio.wait((done,), timeout=min(silent_at, deadline) - now)
