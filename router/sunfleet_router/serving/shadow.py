"""Live exactness: a sample of the answers that clients got is made again, in the background and on another path.

Both legs get a salt of their own, so that no cached KV can stand in for computed KV, and other pods where there are
others. One at a time, none while any request waits, and one that is under way makes room when somebody must wait.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sunfleet_router.admission.gate import Visit
from sunfleet_router.admission.waiting import Waiting
from sunfleet_router.bodies import legs, sse
from sunfleet_router.bodies.clientbody import Ask
from sunfleet_router.bodies.comparing import Comparison, again, comparable, compare
from sunfleet_router.bodies.tokenids import TokenIds
from sunfleet_router.bodies.told import Told
from sunfleet_router.engines import verdict
from sunfleet_router.engines.phases import phase
from sunfleet_router.errors import BusyError, LegFailedError, OverloadedError, RouterError
from sunfleet_router.fleet.snapshot import Task
from sunfleet_router.serving.call import DECODE_POD_HEADER, Call
from sunfleet_router.serving.pairing import Pairing
from sunfleet_router.settings import RouterSettings
from sunfleet_router.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

_MILLION: Final = 1_000_000
_LOOK_SECONDS: Final = 0.05  # how soon a shadow notices that somebody waits


@dataclass(frozen=True, slots=True)
class Given:
    """An answer as its client got it."""

    prompt: TokenIds
    tokens: Sequence[int]


class Shadow:
    """One per process. ``draw`` gives numbers from 0 to 1."""

    def __init__(
        self,
        settings: RouterSettings,
        pairing: Pairing,
        waiting: Waiting,
        metrics: Metrics,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._settings = settings
        self._pairing = pairing
        self._waiting = waiting
        self._metrics = metrics
        self._draw = draw
        self._running: asyncio.Task[None] | None = None

    def samples(self, ask: Ask, task: Task) -> bool:
        """Whether this request's answer shall be made again, if it then can be."""
        rate = task.sample_per_million
        return rate > 0 and comparable(ask) and self._draw() * _MILLION < rate

    def consider(self, call: Call, given: Given) -> None:
        """Make the answer of a sampled call again. Returns at once; the client has its answer."""
        if self.running or self._somebody_waits():
            self._count(call, Comparison("skipped"))
            return
        self._running = asyncio.get_running_loop().create_task(self._check(call, given))

    @property
    def running(self) -> bool:
        return self._running is not None and not self._running.done()

    async def close(self) -> None:
        """Give up what is under way."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def _somebody_waits(self) -> bool:
        return self._waiting.requests.total() > 0

    async def _check(self, call: Call, given: Given) -> None:
        making = asyncio.get_running_loop().create_task(self._make(call, given))
        try:
            while not making.done():
                await asyncio.wait((making,), timeout=_LOOK_SECONDS)
                if self._somebody_waits():
                    making.cancel()
            self._count(call, await making)
        except asyncio.CancelledError:
            making.cancel()
            await asyncio.gather(making, return_exceptions=True)
            self._count(call, Comparison("skipped"))
        except (BusyError, OverloadedError):
            self._count(call, Comparison("skipped"))
        except RouterError as error:
            logger.info("shadow of request %s of %r failed: %s", call.request_id, call.task.name, error.code)
            self._count(call, Comparison("failed"))
        except Exception:  # whatever a bug raises: it may fail no request, and must not go unseen
            logger.exception("shadow of request %s failed", call.request_id)
            self._count(call, Comparison("failed"))

    async def _make(self, call: Call, given: Given) -> Comparison:
        shadow, salt = _shadow_of(call), secrets.token_hex(16)
        with await self._pairing.seat(shadow) as seat:
            body = legs.prefill_over_body(shadow.ask, salt, shadow.route.module, given.prompt)
            with await self._pairing.prefill(shadow, seat.endpoint.fingerprint, body=body) as made:
                if made.reply.prompt != given.prompt:
                    raise LegFailedError("prefill", "The prompt is another one now.", code="resume_mismatch")
                if made.finished:
                    # Another first token, and nothing that says by how much.
                    raise LegFailedError("prefill", "The first token ended the text.", code="not_comparable")
                self._pairing.settle(shadow, seat, made)
                shadow.name_pod(DECODE_POD_HEADER, seat.endpoint)
                leg = legs.decode_body(shadow.ask, salt, made.reply)
                limit = phase("request", call.task.limits.timeouts.request, shadow.deadline)
                with self._pairing.decoding(shadow, seat):
                    answer = await self._pairing.ask(shadow, seat.endpoint, leg, limit, resend=False)
                    if answer.status != 200:
                        raise verdict.of_answer("decode", answer.status, answer.body)
                made.taken = True
                told = _told(answer.body, Told(made.reply))
        result = compare(given.tokens, told.tokens, told.rows, near_tie=self._settings.shadow_near_tie)
        if result.outcome == "mismatch":
            self._report(call, shadow, result)
        return result

    def _report(self, call: Call, shadow: Call, result: Comparison) -> None:
        gap = "none" if result.gap is None else f"{result.gap:.4f}"
        logger.error(
            "request %s of %r was answered inexactly: made again (as %s), its token at position %d is another one "
            "(gap %s nats). Pods: %s; again: %s",
            call.request_id, call.task.name, shadow.request_id, result.position, gap,
            ", ".join(sorted(call.pods.values())), ", ".join(sorted(shadow.pods.values())),
        )  # fmt: skip

    def _count(self, call: Call, result: Comparison) -> None:
        self._metrics.shadow_checks.add(1, call.task.name, result.outcome)


def _shadow_of(call: Call) -> Call:
    """The same request as one that never waits, avoids the pods that made the answer, and answers to nobody."""
    request_id = f"shadow-{secrets.token_hex(8)}"
    now = asyncio.get_running_loop().time()
    limits = replace(call.task.limits, queue_requests=0)
    return replace(
        call, ask=again(call.ask), task=replace(call.task, limits=limits), request_id=request_id,
        headers={"x-request-id": request_id}, started=now, deadline=now + limits.timeouts.request, named=False,
        visit=Visit(call.task, call.visit.key), prompt_tokens=0, tried=set(), avoided=set(call.pods), pods={},
        failure=None, sampled=False,
    )  # fmt: skip


def _told(raw: bytes, told: Told) -> Told:
    """With a whole event stream noted; raises the engine's error, or one for a stream whose tokens are not known."""
    lines = bytearray()
    events = sse.take_progress(raw, lines)
    if (at := sse.before_error(events)) >= 0:
        raise verdict.of_event("decode", sse.payload(events[at:]))
    told.add(events, lines, sse.last_event(events))
    if not (told.exact and told.ended()):
        raise LegFailedError("decode", "The stream did not tell its tokens.", code="bad_engine_answer")
    return told
