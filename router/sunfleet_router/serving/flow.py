"""One request: admit, prefill, decode. The only module that knows the order of things."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from sunfleet_router.admission.claim import Claim
from sunfleet_router.admission.decode_room import Seat
from sunfleet_router.admission.gate import Gate, Visit
from sunfleet_router.admission.lobby import Lobby
from sunfleet_router.bodies import answers, legs
from sunfleet_router.bodies.clientbody import Ask
from sunfleet_router.bodies.handover import PrefillReply
from sunfleet_router.engines import verdict
from sunfleet_router.engines.phases import phase
from sunfleet_router.errors import (
    QUEUE_TIMEOUT,
    BusyError,
    CircuitOpenError,
    LegFailedError,
    PhaseTimeoutError,
    StreamCutError,
    UnavailableError,
    UnknownModelError,
)
from sunfleet_router.fleet.current import Fleet
from sunfleet_router.fleet.snapshot import Route, Task
from sunfleet_router.keys.key import Key
from sunfleet_router.policies.decode import DecodeFacts
from sunfleet_router.serving.call import DECODE_POD_HEADER, Call
from sunfleet_router.serving.pairing import Pairing, Prefilled
from sunfleet_router.serving.reply import ClientReply
from sunfleet_router.serving.served import Served
from sunfleet_router.serving.shadow import Given, Shadow
from sunfleet_router.serving.streaming import Streaming, Telling
from sunfleet_router.settings import RouterSettings
from sunfleet_router.telemetry.metrics import Metrics
from sunfleet_router.trace import Tracer


class Flow:
    """Serves requests; holds the process's books and clients, and no state of its own."""

    def __init__(
        self,
        settings: RouterSettings,
        fleet: Fleet,
        gate: Gate,
        lobby: Lobby,
        pairing: Pairing,
        streaming: Streaming,
        shadow: Shadow,
        metrics: Metrics,
        tracer: Tracer,
    ) -> None:
        self._settings = settings
        self._fleet = fleet
        self._gate = gate
        self._lobby = lobby
        self._pairing = pairing
        self._streaming = streaming
        self._shadow = shadow
        self._metrics = metrics
        self._tracer = tracer

    def task(self, model: str, key: Key) -> Task:
        """The task of that name; 404 when there is none for this key, 503 while nobody can know."""
        task = self._fleet.snapshot.tasks.get(model)
        if task is not None and key.allows(model):
            return task
        if not self._fleet.synced:
            raise UnavailableError("The router has not seen the fleet yet; try again in a moment.", code="not_synced")
        raise UnknownModelError(model)

    def enter(self, ask: Ask, task: Task, key: Key, headers: Mapping[str, str]) -> Served:
        """A context for one client's request, however many answers it wants; raises what :meth:`Gate.enter` does."""
        key.check_priority(ask.priority)
        limit = ask.with_defaults(task.defaults).output_limit if task.defaults else ask.output_limit
        output = limit or self._settings.assumed_output_tokens
        tokens = ask.prompt_tokens * ask.n + output * ask.answers
        span = self._tracer.request(ask.kind, headers) if self._tracer.on else None
        return Served(span, self._gate.enter(task, key, tokens), self._metrics, stream=ask.stream)

    async def answer(
        self, ask: Ask, visit: Visit, reply: ClientReply, request_id: str, headers: dict[str, str]
    ) -> None:
        """Make one answer, trying other pods for as long as the client has not got a byte."""
        task, now = visit.task, asyncio.get_running_loop().time()
        ask = ask.with_defaults(task.defaults) if task.defaults else ask
        deadline = now + task.limits.timeouts.request
        route = None if visit.trace.on else self._lobby.ready(task.name, request_id)
        if route is None:
            route = await self._held(ask, visit, request_id, deadline)
        call = Call(
            ask=ask, task=task, route=route, request_id=request_id, headers=headers, reply=reply, started=now,
            deadline=deadline, named=self._settings.pod_headers, visit=visit,
            sampled=task.sample_per_million > 0 and self._shadow.samples(ask, task),
        )  # fmt: skip
        try:
            await self._try(call)
        except (LegFailedError, PhaseTimeoutError, StreamCutError, CircuitOpenError):
            # An open circuit is its engines' doing: a canary that makes one would else never be found out.
            self._answered(call, failed=True)
            raise
        self._answered(call, failed=False)

    async def _held(self, ask: Ask, visit: Visit, request_id: str, deadline: float) -> Route:
        """Where it goes, once there is a pod for it."""
        facts = DecodeFacts(request_id, ask.prompt_tokens, ())
        claim = Claim(visit.task, "", facts, ask.prompt_tokens, ask.size, ask.priority, deadline)
        with visit.trace.phase("route"):
            return await self._lobby.route(claim)

    def _answered(self, call: Call, *, failed: bool) -> None:
        seconds = asyncio.get_running_loop().time() - call.started
        self._metrics.answered(call.task.name, call.route.revision, seconds, call.output, failed=failed)

    async def _try(self, call: Call) -> None:
        reply = call.reply
        left = self._settings.attempts
        while True:
            left -= 1
            try:
                # Made first, then sent: no room is kept on any pod for a client that reads slowly.
                await self._give(call, await self._make(call))
                return
            except LegFailedError as failure:
                if reply.started:  # the resumes are spent; what failed has been noted then
                    raise
                self._pairing.note(call, failure)
                if not failure.retryable or not left:
                    raise
                call.failure = failure
                self._metrics.retries.add(1, call.task.name)
                if failure.code == verdict.PREEMPTED:
                    await self._pause(call)
            except PhaseTimeoutError as late:
                self._metrics.timed_out(call.task.name, late)
                if not reply.started:  # as above
                    self._pairing.note(call, late)
                raise
            except BusyError as busy:
                if busy.code == QUEUE_TIMEOUT:
                    self._metrics.phase_timeouts.add(1, call.task.name, "queue")
                raise
            except UnavailableError as nothing_left:
                raise (None if reply.started else call.failure) or nothing_left from None

    async def _give(self, call: Call, made: PrefillReply | Telling | tuple[bytes, Given | None]) -> None:
        if isinstance(made, tuple):
            body, given = made
            await call.reply.whole(200, body)
            if given is not None:
                self._shadow.consider(call, given)
        elif isinstance(made, Telling):
            await self._streaming.complete(call, made)
            if call.sampled and made.told.exact:
                self._shadow.consider(call, Given(made.told.first.prompt, made.told.tokens))
        else:
            await self._answer_from_prefill(call, made)

    async def _make(self, call: Call) -> PrefillReply | Telling | tuple[bytes, Given | None]:
        """The prefill's reply if its token is the whole answer; a stream, told or broken off; or a whole body, and its
        tokens if it shall be made again.
        """
        pairing = self._pairing
        if call.ask.output_limit == 1:  # no decode pod is needed
            with await pairing.prefill(call, fingerprint=None) as made:
                return made.reply
        with (
            await pairing.seat(call) as seat,
            await pairing.prefill(call, seat.endpoint.fingerprint) as made,
        ):
            if made.finished:
                return made.reply
            pairing.settle(call, seat, made)
            if call.ask.stream:
                return await self._streaming.begin(call, seat, made)
            return await self._decode_whole(call, seat, made)

    async def _answer_from_prefill(self, call: Call, reply: PrefillReply) -> None:
        self._metrics.prefill_only.add(1, call.task.name)
        self._pairing.count_output(call, len(reply.output))
        if not call.ask.stream:
            await call.reply.whole(200, answers.whole(call.ask, reply))
            return
        elapsed = asyncio.get_running_loop().time() - call.started
        self._metrics.first_token_seconds.add(elapsed, call.task.name)
        stream = await call.reply.open_stream()
        await stream.finish(answers.streamed(call.ask, reply))

    async def _decode_whole(self, call: Call, seat: Seat, made: Prefilled) -> tuple[bytes, Given | None]:
        pod = seat.endpoint
        call.name_pod(DECODE_POD_HEADER, pod)
        body = legs.decode_body(call.ask, call.route.salt, made.reply, ids=call.sampled)
        timeouts = call.task.limits.timeouts
        with self._pairing.decoding(call, seat):
            clock, pulse = phase("request", timeouts.request, call.deadline), self._pairing.pulse(call, pod, made)
            if pulse is None:
                answer = await self._pairing.ask(call, pod, body, clock, resend=False)
            else:
                with pulse:
                    answer = await self._pairing.ask(call, pod, body, clock, resend=False)
            raw = answer.body
            if answer.status != 200:
                raise verdict.of_answer("decode", answer.status, raw)
            output = verdict.check_whole("decode", raw)
        made.taken = True
        self._pairing.praise(pod)
        self._pairing.spend(call, seat, made, output)
        if not call.sampled:
            return raw, None
        raw, tokens = answers.without_ids(call.ask, raw)
        return raw, Given(made.reply.prompt, tokens) if tokens else None

    async def _pause(self, call: Call) -> None:
        """A pool without room needs a moment."""
        with phase("request", call.task.limits.timeouts.request, call.deadline):
            await asyncio.sleep(self._settings.resume_pause)
