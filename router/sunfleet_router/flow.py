"""One request: admit, prefill, decode. The only module that knows the order of things."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sunfleet_router import answers, legs, verdict
from sunfleet_router.admission import Admission, Claim, Seat
from sunfleet_router.clientbody import Ask
from sunfleet_router.connection import UpstreamError
from sunfleet_router.errors import (
    InvalidRequestError,
    Leg,
    LegFailedError,
    NoPrefillEndpointError,
    UnavailableError,
    UnknownModelError,
)
from sunfleet_router.fleet import Fleet
from sunfleet_router.legs import PrefillReply
from sunfleet_router.load import Load
from sunfleet_router.metrics import Metrics
from sunfleet_router.phases import blame, check_opening, phase, until_closed
from sunfleet_router.policies import Reject
from sunfleet_router.policies import prefill as prefill_policy
from sunfleet_router.policies import route as route_policy
from sunfleet_router.policies.decode import DecodeFacts
from sunfleet_router.relay import Relay
from sunfleet_router.reply import ClientReply
from sunfleet_router.settings import RouterSettings
from sunfleet_router.snapshot import Endpoint, Route, Task
from sunfleet_router.upstream import Reply, Upstream

PREFILL_POD_HEADER = b"x-sunfleet-prefill-pod"
DECODE_POD_HEADER = b"x-sunfleet-decode-pod"


@dataclass(slots=True)
class Call:
    """One client's request on its way. Times are the loop's, in seconds."""

    ask: Ask
    task: Task
    route: Route
    request_id: str
    headers: dict[str, str]  # for both engines
    reply: ClientReply
    started: float
    deadline: float
    tried: set[str] = field(default_factory=set)  # uids of pods that failed it
    failure: LegFailedError | None = None


class Flow:
    """Serves requests; holds the process's books and clients, and no state of its own."""

    def __init__(
        self,
        settings: RouterSettings,
        fleet: Fleet,
        load: Load,
        admission: Admission,
        upstream: Upstream,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._fleet = fleet
        self._load = load
        self._admission = admission
        self._upstream = upstream
        self._metrics = metrics

    def task(self, model: str) -> Task:
        """The task of that name; 404 when there is none, 503 while nobody can know."""
        task = self._fleet.snapshot.tasks.get(model)
        if task is not None:
            return task
        if not self._fleet.synced:
            raise UnavailableError("The router has not seen the fleet yet; try again in a moment.", code="not_synced")
        raise UnknownModelError(model)

    async def serve(self, ask: Ask, task: Task, reply: ClientReply, request_id: str, headers: dict[str, str]) -> None:
        """Answer one request, trying other pods for as long as the client has not got a byte."""
        with self._load.request(task):
            call = self._call(ask, task, reply, request_id, headers)
            for left in reversed(range(self._settings.attempts)):
                try:
                    await self._attempt(call)
                    return
                except LegFailedError as failure:
                    self._note(call, failure)
                    if not failure.retryable or reply.started or not left:
                        raise
                    call.failure = failure
                    self._metrics.retries.labels(task.name).inc()
                except UnavailableError as nothing_left:
                    raise call.failure or nothing_left from None

    def _call(self, ask: Ask, task: Task, reply: ClientReply, request_id: str, headers: dict[str, str]) -> Call:
        route = route_policy.choose(task.routes, request_id)
        if route is None:
            raise NoPrefillEndpointError("This model is known, but nothing serves it at the moment; try again later.")
        now = asyncio.get_running_loop().time()
        return Call(
            ask=ask.with_defaults(task.defaults), task=task, route=route, request_id=request_id, headers=headers,
            reply=reply, started=now, deadline=now + task.limits.timeouts.request,
        )  # fmt: skip

    def _note(self, call: Call, failure: LegFailedError) -> None:
        self._metrics.leg_failures.labels(call.task.name, failure.leg, failure.code).inc()
        if failure.pod is None:
            return
        if not failure.same_pod:
            call.tried.add(failure.pod)
            if failure.unreachable:
                self._load.suspect(failure.pod)

    async def _attempt(self, call: Call) -> None:
        if call.ask.output_limit == 1:  # the prefill's token is the whole answer: no decode pod is needed
            reply, _ = await self._prefill(call, fingerprint=None)
            await self._answer_from_prefill(call, reply)
            return
        async with self._reserve(call) as seat:
            reply, pod = await self._prefill(call, seat.endpoint.fingerprint)
            if reply.finished(call.ask, pod.max_model_len):
                await self._answer_from_prefill(call, reply)
                return
            self._settle(call, seat, reply, pod.fingerprint)
            body = legs.decode_body(call.ask, call.route.salt, reply)
            if call.ask.stream:
                await self._decode_stream(call, seat.endpoint, body)
            else:
                await self._decode_whole(call, seat.endpoint, body)

    # admission

    @asynccontextmanager
    async def _reserve(self, call: Call) -> AsyncIterator[Seat]:
        prefill_pods = self._prefill_pods(call)
        if not prefill_pods:
            raise NoPrefillEndpointError("This model is known, but no prefill pod is ready for it; try again later.")
        pool = self._fleet.snapshot.pool(call.route.decoder)
        tokens = self._tokens(call, call.ask.prompt_tokens)
        longest = max((pod.max_model_len or 0 for pod in pool), default=0)
        facts = DecodeFacts(
            request_id=call.request_id,
            tokens=min(tokens, longest) if longest else tokens,
            fingerprints=frozenset(pod.fingerprint for pod in prefill_pods),
            tried=call.tried,
        )
        began = time.monotonic()
        claim = Claim(call.task, call.route.decoder, facts, call.ask.prompt_tokens)
        async with self._admission.reserve(claim) as seat:
            self._metrics.queue_seconds.labels(call.task.name).observe(time.monotonic() - began)
            yield seat

    def _tokens(self, call: Call, prompt_tokens: int) -> int:
        """KV tokens that the request may fill."""
        return prompt_tokens + (call.ask.output_limit or self._settings.assumed_output_tokens)

    def _settle(self, call: Call, seat: Seat, reply: PrefillReply, fingerprint: str) -> None:
        tokens, longest = self._tokens(call, len(reply.prompt)), seat.endpoint.max_model_len
        seat.settle(min(tokens, longest) if longest else tokens, fingerprint)
        longest = seat.endpoint.max_model_len
        if longest is not None and len(reply.prompt) >= longest:
            raise InvalidRequestError(
                f"The prompt has {len(reply.prompt)} tokens; the maximum context length is {longest} tokens.",
                code="context_length_exceeded",
            )

    # prefill leg

    def _prefill_pods(self, call: Call) -> tuple[Endpoint, ...]:
        """The route's pods as they are now, not as they were when the request came."""
        task = self._fleet.snapshot.tasks.get(call.task.name)
        for route in task.routes if task else ():
            if route.revision == call.route.revision:
                return route.prefill
        return ()

    async def _prefill(self, call: Call, fingerprint: str | None) -> tuple[PrefillReply, Endpoint]:
        facts = prefill_policy.PrefillFacts(call.request_id, fingerprint, call.tried)
        choice = prefill_policy.choose(
            facts, self._prefill_pods(call), self._load.prefill_tokens, self._load.suspects()
        )
        if isinstance(choice, Reject):
            raise NoPrefillEndpointError("This model is known, but no prefill pod is ready for it; try again later.")
        pod = choice.endpoint
        self._name_pod(call, PREFILL_POD_HEADER, pod)
        began = time.monotonic()
        body = legs.prefill_body(call.ask, call.route.salt)
        with self._load.prefill(pod, call.ask.prompt_tokens), blame(pod):
            async with phase("prefill", call.task.limits.timeouts.prefill, call.deadline):
                raw = await self._exchange("prefill", call, pod, body, resend=True)
            reply = legs.read_prefill(raw)
            if not reply.finished(call.ask, pod.max_model_len):
                legs.check_handover(reply)
        self._metrics.prefill_seconds.labels(call.task.name).observe(time.monotonic() - began)
        self._metrics.prompt_tokens.labels(call.task.name).inc(len(reply.prompt))
        return reply, pod

    async def _answer_from_prefill(self, call: Call, reply: PrefillReply) -> None:
        self._metrics.prefill_only.labels(call.task.name).inc()
        if call.ask.stream:
            self._first_token(call)
            stream = await call.reply.open_stream()
            await stream.finish(answers.streamed(call.ask, reply))
        else:
            await call.reply.whole(200, answers.whole(call.ask, reply))

    # decode leg

    async def _decode_whole(self, call: Call, pod: Endpoint, body: bytes) -> None:
        self._name_pod(call, DECODE_POD_HEADER, pod)
        with blame(pod):
            async with phase("request", call.task.limits.timeouts.request, call.deadline):
                raw = await self._exchange("decode", call, pod, body, resend=False)
            verdict.check_whole("decode", raw)
        await call.reply.whole(200, raw)

    async def _decode_stream(self, call: Call, pod: Endpoint, body: bytes) -> None:
        self._name_pod(call, DECODE_POD_HEADER, pod)
        timeouts = call.task.limits.timeouts
        relay = Relay(asyncio.get_running_loop())
        with blame(pod):
            async with phase("first_token", timeouts.kv_load + timeouts.first_token, call.deadline):
                try:
                    connection = await self._upstream.start(pod, legs.PATHS[call.ask.kind], call.headers, body, relay)
                except UpstreamError as error:
                    raise verdict.of_exchange("decode", error) from error
                try:
                    await relay.opened
                except BaseException:
                    connection.abort()
                    raise
            check_opening(relay)
        try:
            self._first_token(call)
            stream = await call.reply.open_stream()
            stream.attach(connection)
            relay.flow_to(stream)
            await until_closed(relay, stream, timeouts.inter_token, call.deadline, timeouts.request)
            await stream.finish()
        finally:
            if not relay.closed.done():
                connection.abort()

    async def _exchange(self, leg: Leg, call: Call, pod: Endpoint, body: bytes, *, resend: bool) -> bytes:
        path, limit = legs.PATHS[call.ask.kind], self._settings.max_answer_bytes
        try:
            answer: Reply = await self._upstream.fetch(pod, path, call.headers, body, limit=limit, resend=resend)
        except UpstreamError as error:
            raise verdict.of_exchange(leg, error) from error
        if answer.status != 200:
            raise verdict.of_answer(leg, answer.status, answer.body)
        return answer.body

    # odds and ends

    def _first_token(self, call: Call) -> None:
        elapsed = asyncio.get_running_loop().time() - call.started
        self._metrics.first_token_seconds.labels(call.task.name).observe(elapsed)

    def _name_pod(self, call: Call, header: bytes, pod: Endpoint) -> None:
        if self._settings.pod_headers:
            call.reply.set_header(header, pod.name)
