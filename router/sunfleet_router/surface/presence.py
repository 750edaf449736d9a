"""Ends a request's work when its client leaves, in whatever phase it is, streamed or not, or when the process must go.

Our own server calls back. Others tell of a client's leaving only through ASGI's ``receive``, so a task waits there for
the whole time; looking at it between chunks would miss a client that leaves during a long prefill.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from types import TracebackType
from typing import Any, Self

from sunfleet_router.errors import BodyTooLargeError, ClientGoneError, RouterError
from sunfleet_router.transport.exchange import Inbox

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


def take_body(receive: Receive, limit: int) -> bytes | None:
    """The whole request body, if all of it is there already, as it mostly is; raises as :func:`read_body`."""
    if not isinstance(receive, Inbox):
        return None
    if receive.size > limit:
        raise _too_large(limit)
    return receive.take_whole()


async def read_body(receive: Receive, limit: int, announced: int | None) -> bytes:
    """The whole request body; raises :class:`BodyTooLargeError` as soon as it must be, :class:`ClientGoneError` if it
    never ends.
    """
    if announced is not None and announced > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(limit: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"The body exceeds {limit} bytes.")


class Presence:
    """A context in which the current task works for a client; it leaves with the reason when there is one to stop."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._inbox = receive if isinstance(receive, Inbox) else None
        self._reason: RouterError | None = None
        self._cancelling = 0
        self._watch: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        inbox = self._inbox
        task = (inbox.work if inbox is not None else None) or asyncio.current_task()
        assert task is not None  # noqa: S101 a coroutine of a server runs in a task
        self._task = task
        self._cancelling = task.cancelling()
        if inbox is None:
            self._watch = asyncio.get_running_loop().create_task(self._wait_for_leave())
        elif inbox.closed:
            self._leave()
        else:
            inbox.on_leave = self._leave
        return self

    def interrupt(self, reason: RouterError) -> None:
        """Stop the work with ``reason``; only the first one counts."""
        if self._reason is None:
            self._reason = reason
            self._task.cancel()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._watch is not None:
            self._watch.cancel()
        elif self._inbox is not None:
            self._inbox.on_leave = None
        # As asyncio.timeout does: only our own cancellation becomes the reason, somebody else's stays what it is.
        if self._reason is not None and self._task.uncancel() <= self._cancelling:
            raise self._reason from None

    async def _wait_for_leave(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        self.interrupt(ClientGoneError())
