"""Questions that one of a task's prefill pods answers by itself: its tokenizer's. No KV is made, nothing is decoded."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from starlette.types import Send

from sunfleet_api import wire
from sunfleet_router.admission.load import Load
from sunfleet_router.bodies import clientbody
from sunfleet_router.dialects.messages import Messages
from sunfleet_router.dialects.messages.request import counted
from sunfleet_router.dialects.translating import Translating
from sunfleet_router.engines import verdict
from sunfleet_router.engines.phases import phase
from sunfleet_router.engines.upstream import Upstream
from sunfleet_router.errors import CircuitOpenError, LegFailedError, NoPrefillEndpointError
from sunfleet_router.fleet.snapshot import Endpoint
from sunfleet_router.keys.key import Key
from sunfleet_router.policies import Reject
from sunfleet_router.policies import prefill as prefill_policy
from sunfleet_router.policies import route as route_policy
from sunfleet_router.settings import RouterSettings
from sunfleet_router.surface.door import Caller, Door, Serving
from sunfleet_router.transport.connection import UpstreamError


class Asides:
    """One per process; holds no state of its own."""

    def __init__(self, settings: RouterSettings, load: Load, upstream: Upstream) -> None:
        self._settings = settings
        self._load = load
        self._upstream = upstream

    async def ask(self, path: str, body: dict[str, Any], caller: Caller) -> bytes:
        """The body of a prefill pod's 200 answer; another pod is asked when one cannot be reached."""
        assert caller.task is not None  # noqa: S101 the caller has looked it up
        raw = orjson.dumps({**body, "model": self._module(caller)})
        seconds, now = caller.task.limits.timeouts.prefill, asyncio.get_running_loop().time()
        tried: set[str] = set()
        with phase("prefill", seconds, now + seconds):
            for left in reversed(range(self._settings.attempts)):
                pod = self._choose(caller, tried)
                tried.add(pod.uid)
                try:
                    return await self._exchange(pod, path, raw, caller)
                except LegFailedError as failure:
                    if not failure.retryable or not left:
                        raise
        raise AssertionError("the last attempt returns or raises")  # pragma: no cover

    def _module(self, caller: Caller) -> str:
        assert caller.task is not None  # noqa: S101 as above
        route = route_policy.choose(caller.task.routes, caller.request_id)
        return route.module if route else wire.ENGINE_MODEL

    def _choose(self, caller: Caller, tried: set[str]) -> Endpoint:
        assert caller.task is not None  # noqa: S101 as above
        route = route_policy.choose(caller.task.routes, caller.request_id)
        facts = prefill_policy.PrefillFacts(caller.request_id, None, tried)
        pods = route.prefill if route else ()
        choice = prefill_policy.choose_again(
            facts, pods, self._load.prefill_tokens, self._load.suspects(), ejected=self._load.ejected()
        )
        if isinstance(choice, Reject):
            if choice.reason == "ejected":
                raise CircuitOpenError("prefill", choice.seconds)
            raise NoPrefillEndpointError("This model is known, but no prefill pod is ready for it; try again later.")
        return choice.endpoint

    async def _exchange(self, pod: Endpoint, path: str, body: bytes, caller: Caller) -> bytes:
        assert caller.task is not None  # noqa: S101 as above
        limit, connect = self._settings.max_answer_bytes, caller.task.limits.timeouts.connect
        try:
            answer = await self._upstream.fetch(
                pod, path, caller.headers, body, limit=limit, resend=True, connect=connect
            )
        except UpstreamError as error:
            raise verdict.of_exchange("prefill", error) from error
        if answer.status != 200:
            raise verdict.of_answer("prefill", answer.status, answer.body)
        verdict.check_whole("prefill", answer.body)
        return answer.body


class Tokenizer(Door):
    """``/tokenize`` or ``/detokenize``, with the engine's own bodies."""

    def __init__(self, path: str, serving: Serving, asides: Asides) -> None:
        super().__init__(serving)
        self._path = path
        self._asides = asides

    async def serve(self, body: bytes, caller: Caller) -> None:
        request = clientbody.load(body)
        clientbody.refuse_steering(request)
        caller.task = self._serving.flow.task(clientbody.model_of(request), caller.key)
        await caller.reply.whole(200, await self._asides.ask(self._path, request, caller))


class CountTokens(Door):
    """``/v1/messages/count_tokens``: the prompt as the task's template renders it."""

    def __init__(self, serving: Serving, asides: Asides) -> None:
        super().__init__(serving)
        self._asides = asides

    def caller(self, send: Send, key: Key, request_id: str, headers: dict[str, str]) -> Caller:
        return super().caller(Translating(send, Messages()), key, request_id, headers)

    async def serve(self, body: bytes, caller: Caller) -> None:
        request = clientbody.load(body)
        clientbody.refuse_steering(request)
        caller.task = self._serving.flow.task(clientbody.model_of(request), caller.key)
        answer = orjson.loads(await self._asides.ask("/tokenize", counted(request), caller))
        count = answer.get("count")
        if type(count) is not int:
            raise LegFailedError("prefill", "The prefill engine counted no tokens.", code="bad_engine_answer")
        told = {"input_tokens": count, "context_management": {"original_input_tokens": count}}
        await caller.reply.whole(200, orjson.dumps(told))
