"""Who is being served, and whether anyone may still come in."""

from __future__ import annotations

import asyncio

from sunfleet_router.errors import ShuttingDownError, StreamCutError
from sunfleet_router.serving.reply import ClientReply
from sunfleet_router.surface.presence import Presence


class Desk:
    """One per process."""

    def __init__(self) -> None:
        self.draining = False
        self._present: dict[Presence, ClientReply] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    def enter(self, presence: Presence, reply: ClientReply) -> None:
        if not self._present:
            self._empty.clear()
        self._present[presence] = reply

    def leave(self, presence: Presence) -> None:
        self._present.pop(presence, None)
        if not self._present:
            self._empty.set()

    @property
    def in_flight(self) -> int:
        return len(self._present)

    async def wait_empty(self, timeout: float) -> bool:  # noqa: ASYNC109 the answer is a value here, no error
        """Whether everyone has been served within ``timeout`` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def interrupt_all(self) -> None:
        """The time to drain is over: whoever is still here gets an explicit error."""
        for presence, reply in list(self._present.items()):
            text = "The router is shutting down; try again."
            presence.interrupt(StreamCutError(text) if reply.started else ShuttingDownError(text))
