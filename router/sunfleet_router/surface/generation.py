"""The doors behind which tokens are made: chats, completions, and what other APIs ask for as chats."""

from __future__ import annotations

from collections.abc import Awaitable

from starlette.types import Send

from sunfleet_router.bodies import clientbody
from sunfleet_router.bodies.clientbody import Ask, Kind
from sunfleet_router.dialects import Dialect
from sunfleet_router.dialects.translating import Translating
from sunfleet_router.keys.key import Key
from sunfleet_router.serving.fanout import Fanout
from sunfleet_router.surface.door import Caller, Door, Serving


class Generation(Door):
    """OpenAI's own two routes. What an engine says reaches the client as it is."""

    def __init__(self, kind: Kind, serving: Serving, fanout: Fanout) -> None:
        super().__init__(serving)
        self._kind = kind
        self._fanout = fanout

    def serve(self, body: bytes, caller: Caller) -> Awaitable[None]:
        return self._answer(clientbody.parse(self._kind, body), caller)

    async def _answer(self, ask: Ask, caller: Caller) -> None:
        flow, reply = self._serving.flow, caller.reply
        caller.task = task = flow.task(ask.model, caller.key)
        with flow.enter(ask, task, caller.key, caller.headers) as visit:
            if ask.answers == 1:
                await flow.answer(ask, visit, reply, caller.request_id, caller.headers)
            else:
                await self._fanout.answer(ask, visit, reply, caller.send, caller.request_id, caller.headers)


class Translated(Generation):
    """A route of another API: a chat to everything behind this door."""

    def __init__(self, dialect: Dialect, serving: Serving, fanout: Fanout) -> None:
        super().__init__("chat", serving, fanout)
        self._dialect = dialect

    def caller(self, send: Send, key: Key, request_id: str, headers: dict[str, str]) -> Caller:
        return super().caller(Translating(send, self._dialect), key, request_id, headers)

    def serve(self, body: bytes, caller: Caller) -> Awaitable[None]:
        assert isinstance(caller.send, Translating)  # noqa: S101 made above
        return self._answer(caller.send.read(body, caller.request_id), caller)
