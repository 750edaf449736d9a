"""Streamed decode legs into one client's stream, as many as it takes.

The first one opens the client's stream. When a leg breaks off after that, and the break is one that another pod can
heal, the prompt's KV is made again from the same token ids and the next leg goes on after the tokens that were told.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass
from typing import Final

from sunfleet_router.admission.decode_room import Seat
from sunfleet_router.bodies import answers, legs
from sunfleet_router.bodies.told import Told
from sunfleet_router.engines import verdict
from sunfleet_router.engines.phases import check_opening, phase, until, until_closed
from sunfleet_router.engines.relay import ClientStream, Relay
from sunfleet_router.engines.upstream import Upstream
from sunfleet_router.engines.verdict import Break
from sunfleet_router.errors import (
    CircuitOpenError,
    LegFailedError,
    NoPrefillEndpointError,
    PhaseTimeoutError,
    ResumeMismatchError,
    RouterError,
)
from sunfleet_router.fleet.snapshot import Endpoint
from sunfleet_router.serving.call import DECODE_POD_HEADER, Call
from sunfleet_router.serving.pairing import Pairing, Prefilled
from sunfleet_router.settings import RouterSettings
from sunfleet_router.telemetry.metrics import Metrics
from sunfleet_router.transport.connection import Connection, UpstreamError

logger = logging.getLogger(__name__)

_LONGEST_PAUSE: Final = 5.0  # seconds


@dataclass(slots=True)
class Telling:
    """One client's stream over all its decode legs."""

    told: Told
    stream: ClientStream | None = None  # None: not opened yet
    rest: bytes = b""  # of a whole stream: what its last leg left unsaid
    broken: Break | None = None
    broken_at: float = 0.0  # the loop's time
    fruitless: int = 0  # tries to go on since the last new token
    tries: int = 0


class Streaming:
    """One per process; holds no state of its own."""

    def __init__(self, settings: RouterSettings, pairing: Pairing, upstream: Upstream, metrics: Metrics) -> None:
        self._settings = settings
        self._pairing = pairing
        self._upstream = upstream
        self._metrics = metrics

    async def begin(self, call: Call, seat: Seat, made: Prefilled) -> Telling:
        """The first decode leg, until it ends or breaks off. Raises what may still be tried again from the start."""
        telling = Telling(Told(made.reply))
        body = legs.decode_body(call.ask, call.route.salt, made.reply)
        with self._pairing.decoding(call, seat):
            await self._tell(call, telling, seat, made, body)
        return telling

    async def complete(self, call: Call, telling: Telling) -> None:
        """Go on wherever the stream broke off, and end it. The caller holds no room for the request any more.

        Raises the last break's error when it cannot be healed within the bounds of the settings.
        """
        if telling.broken is not None:
            await self._resume(call, telling)
        assert telling.stream is not None  # noqa: S101 a leg that was told has opened it
        with phase("request", call.task.limits.timeouts.request, call.deadline):
            await telling.stream.finish(telling.rest)

    async def _resume(self, call: Call, telling: Telling) -> None:
        outcome = "abandoned"  # the client left, or the router must go
        try:
            while telling.broken is not None:
                self._check(telling, telling.broken)
                self._metrics.resumes.add(1, call.task.name, telling.broken.reason)
                logger.info(
                    "request %s of %r: its stream broke off (%s) after %d tokens, going on elsewhere",
                    call.request_id, call.task.name, telling.broken.reason, len(telling.told.tokens),
                )  # fmt: skip
                with phase("request", call.task.limits.timeouts.request, call.deadline):
                    await asyncio.sleep(self._pause(telling, telling.broken))
                await self._go_on(call, telling)
            outcome = "completed"
        except RouterError:
            outcome = "failed"
            raise
        finally:
            self._metrics.resumed_streams.add(1, call.task.name, outcome)

    def _check(self, telling: Telling, broken: Break) -> None:
        settings = self._settings
        spent = telling.fruitless >= settings.resume_attempts or telling.tries >= settings.resume_limit
        if spent or not broken.resumable or not telling.told.exact:
            raise broken.error

    def _pause(self, telling: Telling, broken: Break) -> float:
        """Seconds: none for the first try on another pod; a pool without room needs a moment, and ever more of them."""
        doublings = telling.fruitless if broken.reason == "preempted" else telling.fruitless - 1
        if doublings < 0:
            return 0.0
        jitter = random.uniform(0.5, 1.5)  # noqa: S311 streams that were preempted together shall not come together
        return jitter * min(self._settings.resume_pause * 2.0**doublings, _LONGEST_PAUSE)

    async def _go_on(self, call: Call, telling: Telling) -> None:
        """One try: room, the prompt's KV, and a decode leg until it ends or breaks off in its turn."""
        told, before = telling.told, len(telling.told.tokens)
        telling.tries += 1
        telling.fruitless += 1
        try:
            with await self._pairing.seat(call, told) as seat:
                await self._go_on_at(call, telling, seat)
        except (LegFailedError, PhaseTimeoutError) as failure:
            if isinstance(failure, PhaseTimeoutError) and failure.phase == "request":
                raise
            self._pairing.note(call, failure)
            telling.broken = verdict.of_failure(failure)
        except (NoPrefillEndpointError, CircuitOpenError) as nobody:
            telling.broken = verdict.of_failure(nobody)
        if len(told.tokens) > before:
            telling.fruitless = 0

    async def _go_on_at(self, call: Call, telling: Telling, seat: Seat) -> None:
        told = telling.told
        with await self._pairing.prefill(call, seat.endpoint.fingerprint, told) as made:
            if made.reply.prompt != told.first.prompt:
                raise ResumeMismatchError
            self._pairing.settle(call, seat, made, told)
            body = legs.resume_body(call.ask, call.route.salt, made.reply, told)
            with self._pairing.decoding(call, seat):
                await self._tell(call, telling, seat, made, body)

    async def _tell(self, call: Call, telling: Telling, seat: Seat, made: Prefilled, body: bytes) -> None:
        """One decode leg into the client's stream. Raises only before its first event, and when time is over."""
        pod, before = seat.endpoint, len(telling.told.tokens)
        call.name_pod(DECODE_POD_HEADER, pod)
        relay = Relay(asyncio.get_running_loop(), may_be_moved=call.reply.on_pump)
        begins = not telling.told.tokens
        with call.visit.trace.phase("kv_load"):
            connection = await self._open(call, pod, body, relay, begins=begins)
        made.taken = True
        self._pairing.trust(pod)
        try:
            stream = await self._stream(call, telling)
            if not relay.over:
                stream.attach(connection)
            relay.flow_to(stream)
            seeds = len(telling.told.output) if begins else 0
            error = await self._end(call, relay, stream, connection, seeds)
        finally:
            if not relay.over:
                connection.abort()
            if telling.stream is not None:
                telling.stream.detach()
            telling.told.add(relay.opening, relay.lines, relay.last_event)
            self._pairing.spend(call, seat, made, len(telling.told.tokens) - before)
        self._conclude(call, telling, pod, error)

    async def _open(self, call: Call, pod: Endpoint, body: bytes, relay: Relay, *, begins: bool) -> Connection:
        """Send the request and wait for its first event.

        A stream that ``begins`` tells the token that it was handed as soon as the pod has the prompt's KV; one that
        goes on is silent until the pod has made a token of its own.
        """
        timeouts, path = call.task.limits.timeouts, legs.PATHS[call.ask.kind]
        name, seconds = ("kv_load", timeouts.kv_load) if begins else (
            "first_token", timeouts.kv_load + timeouts.first_token
        )  # fmt: skip
        with phase(name, seconds, call.deadline):
            try:
                connection = await self._upstream.start(pod, path, call.headers, body, relay, timeouts.connect)
            except UpstreamError as error:
                raise verdict.of_exchange("decode", error) from error
            try:
                await relay.opened
                check_opening(relay)
            except BaseException:
                if not relay.over:
                    connection.abort()
                raise
        return connection

    async def _stream(self, call: Call, telling: Telling) -> ClientStream:
        now, name = asyncio.get_running_loop().time(), call.task.name
        if telling.stream is None:
            self._metrics.first_token_seconds.add(now - call.started, name)
            telling.stream = await call.reply.open_stream()
        else:
            self._metrics.resume_seconds.add(now - telling.broken_at, name)
            self._metrics.replayed_tokens.add(len(telling.told.tokens), name)
        return telling.stream

    async def _end(
        self, call: Call, relay: Relay, stream: ClientStream, connection: Connection, seeds: int
    ) -> BaseException | None:
        """What the leg ended with. ``seeds``: how many tokens it tells that the pod has not made."""
        timeouts = call.task.limits.timeouts
        further = relay.further(seeds) if seeds else None
        connection.hand_over(relay, stream.on_pump)
        try:
            if further is not None:
                with call.visit.trace.phase("first_token"):
                    limit = timeouts.first_token
                    await until(further, relay, stream, "first_token", limit, call.deadline, timeouts.request)
            return await until_closed(relay, stream, timeouts.inter_token, call.deadline, timeouts.request)
        except PhaseTimeoutError as late:
            return late

    def _conclude(self, call: Call, telling: Telling, pod: Endpoint, error: BaseException | None) -> None:
        telling.broken = None
        if error is None:
            self._pairing.praise(pod)
            return
        if telling.told.ended():
            telling.rest = answers.ending(call.ask, telling.told)
            return
        if isinstance(error, PhaseTimeoutError) and error.phase == "request":
            raise error
        telling.broken, telling.broken_at = verdict.of_break(error), asyncio.get_running_loop().time()
        if isinstance(telling.broken.error, LegFailedError):
            telling.broken.error.pod = pod.uid
            self._pairing.note(call, telling.broken.error)
        else:
            if isinstance(error, PhaseTimeoutError):
                self._metrics.timed_out(call.task.name, error)
            self._pairing.shun(call, pod.uid, unreachable=telling.broken.reason == "cut")
