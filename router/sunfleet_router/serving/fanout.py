"""Several answers to one request: each by its own two legs, all into one client's answer.

Nothing of the flow below knows of it: each part has a reply of its own, whose ``send`` ends here instead of at the
server. A slow client holds all of its parts back.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

from sunfleet_router.admission.gate import Visit
from sunfleet_router.bodies import choices
from sunfleet_router.bodies.clientbody import Ask
from sunfleet_router.engines.relay import Send
from sunfleet_router.errors import RouterError
from sunfleet_router.serving.flow import Flow
from sunfleet_router.serving.reply import ClientReply


class Fanout:
    """One per process. ``most``: answers of one request; ``at_once``: of these under way at the same time."""

    def __init__(self, flow: Flow, *, most: int, at_once: int) -> None:
        self._flow = flow
        self._most = most
        self._at_once = at_once

    async def answer(
        self, ask: Ask, visit: Visit, reply: ClientReply, send: Send, request_id: str, headers: dict[str, str]
    ) -> None:
        """Answer all parts of ``ask``; the first failure ends the others. ``send`` is what ``reply`` sends to."""
        parts = choices.split(ask, self._most)
        gathering = _Gathering(ask, len(parts), reply, send)
        room = asyncio.Semaphore(self._at_once)

        async def one(index: int, part: Ask) -> None:
            own_id = choices.part_id(request_id, index)
            own_reply = ClientReply(gathering.sender(index), own_id)
            try:
                async with room:
                    await self._flow.answer(part, visit, own_reply, request_id, {**headers, "x-request-id": own_id})
            finally:
                own_reply.abandon()

        try:
            async with asyncio.TaskGroup() as group:
                for index, part in enumerate(parts):
                    group.create_task(one(index, part))
        except BaseExceptionGroup as failures:
            first = _first(failures)
            raise first from first.__cause__
        await gathering.finish()


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """What the client is told; a bug before anything else, so that it is seen."""
    bugs = [failure for failure in failures.exceptions if not isinstance(failure, RouterError)]
    return (bugs or failures.exceptions)[0]


class _Gathering:
    """One client's answer, made of many."""

    def __init__(self, ask: Ask, parts: int, reply: ClientReply, send: Send) -> None:
        self._stream = ask.stream
        self._reply = reply
        self._send = send
        self._together = choices.Together(ask.n)
        self._bodies = [b""] * parts
        self._turn = asyncio.Lock()

    def sender(self, index: int) -> Send:
        """The ``send`` of answer ``index``: takes what a server would."""

        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] != "http.response.body":
                return
            if not self._stream:
                self._bodies[index] += message["body"]
            elif events := self._together.events(index, message["body"]):
                await self._pass_on(events)

        return send

    async def finish(self) -> None:
        """All parts are there."""
        if not self._stream:
            await self._reply.whole(200, self._together.whole(self._bodies))
            return
        ending = {"type": "http.response.body", "body": self._together.ending(), "more_body": False}
        await self._send(ending)

    async def _pass_on(self, events: bytes) -> None:
        async with self._turn:
            if not self._reply.started:
                await self._reply.open_stream()
            await self._send({"type": "http.response.body", "body": events, "more_body": True})
