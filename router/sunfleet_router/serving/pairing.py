"""A pair of pods for one request: room on a decode pod, and the prompt's KV made on a prefill pod that it can read.

What the first attempt and every resume have in common; the order of things is the callers'.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from types import TracebackType

from sunfleet_router.admission.claim import Claim
from sunfleet_router.admission.decode_room import Admission, Seat
from sunfleet_router.admission.load import Load
from sunfleet_router.bodies import legs
from sunfleet_router.bodies.beginning import beginning
from sunfleet_router.bodies.handover import PrefillReply
from sunfleet_router.bodies.told import Told
from sunfleet_router.engines import verdict
from sunfleet_router.engines.phases import phase
from sunfleet_router.engines.pulse import Pulse
from sunfleet_router.engines.release import Hold, Releaser
from sunfleet_router.engines.upstream import Reply, Upstream
from sunfleet_router.errors import (
    CircuitOpenError,
    InvalidRequestError,
    LegFailedError,
    NoPrefillEndpointError,
    PhaseTimeoutError,
)
from sunfleet_router.fleet.current import Fleet
from sunfleet_router.fleet.snapshot import Endpoint
from sunfleet_router.fleet.ways import Ways
from sunfleet_router.policies import NOBODY, Reject, standing
from sunfleet_router.policies import prefill as prefill_policy
from sunfleet_router.policies.decode import DecodeFacts
from sunfleet_router.serving.call import PREFILL_POD_HEADER, Call
from sunfleet_router.serving.underway import Decoding, Prefilling
from sunfleet_router.settings import RouterSettings
from sunfleet_router.telemetry.metrics import Metrics


class Prefilled(Hold):
    """A prompt's KV on a pod: a context at whose end it is released, unless it was ``taken``. ``finished``: its first
    token is the whole answer.
    """

    __slots__ = ("_avoided", "finished", "reply")

    def __init__(self, releaser: Releaser, pod: Endpoint, reply: PrefillReply, call: Call) -> None:
        self._releaser, self.pod, self._transfer, self._headers = releaser, pod, reply.transfer, call.headers
        self.taken = False
        self.reply = reply
        self.finished = reply.finished(call.ask, pod.max_model_len)
        self._avoided = call.avoided

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if failure is not None and isinstance(failure, LegFailedError) and failure.code in verdict.NOT_HANDED_OVER:
            self._avoided.add(self.pod.uid)
        if not self.taken:
            super().__exit__(kind, failure, traceback)


class Pairing:
    """One per process; of its own it only remembers what the present snapshot says."""

    def __init__(
        self,
        settings: RouterSettings,
        fleet: Fleet,
        load: Load,
        admission: Admission,
        upstream: Upstream,
        metrics: Metrics,
        releaser: Releaser,
    ) -> None:
        self._settings = settings
        self._fleet = fleet
        self._load = load
        self._admission = admission
        self._upstream = upstream
        self._metrics = metrics
        self._releaser = releaser
        self._ways = Ways()

    async def seat(self, call: Call, told: Told | None = None) -> Seat:
        """Room for prompt and output on a decode pod; ``told``: of a stream that has begun, which waits more patiently.

        Raises what :meth:`Admission.reserve` raises, :class:`NoPrefillEndpointError` and :class:`CircuitOpenError`.
        """
        way = self._ways.of(self._fleet.snapshot, call.task.name, call.route)
        if not way.prefill:
            raise _no_prefill()
        fingerprints: Collection[str] = way.fingerprints
        if self._load.failing:
            able = standing(way.prefill, self._load.ejected())
            if isinstance(able, Reject):
                raise CircuitOpenError("prefill", able.seconds)
            fingerprints = {pod.fingerprint for pod in able}
        prompt_tokens = told.first.prompt.count if told else call.ask.prompt_tokens
        room = way.room(self._tokens(call, prompt_tokens, told))
        facts = DecodeFacts(call.request_id, room, fingerprints, call.tried, call.avoided)
        claim = Claim(
            call.task, call.route.decoder, facts, prompt_tokens, call.ask.size, call.ask.priority, call.deadline,
            resumed=told is not None,
        )  # fmt: skip
        trace = call.visit.trace
        seat = None if trace.on else self._admission.at_once(claim)  # no phase for what takes no time
        if seat is None:
            with trace.phase("queue"):
                seat = await self._admission.reserve(claim)
        self._metrics.queue_seconds.add(seat.waited, call.task.name)
        return seat

    def settle(self, call: Call, seat: Seat, made: Prefilled, told: Told | None = None) -> None:
        """Correct the reservation now that the prompt has been counted."""
        prompt = made.reply.prompt.count
        seat.settle(seat.endpoint.room(self._tokens(call, prompt, told)), made.pod.fingerprint)
        longest = seat.endpoint.max_model_len
        if longest is not None and prompt >= longest:
            raise InvalidRequestError(
                f"The prompt has {prompt} tokens; the maximum context length is {longest} tokens.",
                code="context_length_exceeded",
            )

    def spend(self, call: Call, seat: Seat, made: Prefilled, output: int) -> None:
        """Account for what a decode leg used in the end: the prompt's KV and ``output`` tokens."""
        seat.spent = made.reply.prompt.count + output
        call.visit.output += output  # as count_output, in every request
        call.output += output
        self._metrics.output_tokens.add(output, call.task.name)

    def count_output(self, call: Call, output: int) -> None:
        """``output`` more tokens have been made for the client."""
        call.visit.output += output
        call.output += output
        self._metrics.output_tokens.add(output, call.task.name)

    async def prefill(
        self, call: Call, fingerprint: str | None, told: Told | None = None, *, body: bytes | None = None
    ) -> Prefilled:
        """The prompt's KV, readable for ``fingerprint``: a context, which the caller must enter at once.

        ``fingerprint=None``: nothing will be decoded. ``told``: of a stream that goes on. ``body``: in place of
        the usual one.
        """
        pod, timeouts, name = self._choose_prefill(call, fingerprint, told), call.task.limits.timeouts, call.task.name
        call.name_pod(PREFILL_POD_HEADER, pod)
        body = body or (
            legs.prefill_again_body(call.ask, call.route.salt, call.route.module, told.first.prompt)
            if told
            else legs.prefill_body(call.ask, call.route.salt, call.route.module)
        )
        with Prefilling(call, pod, self._load, self._metrics) as leg:
            answer = await self.ask(call, pod, body, phase("prefill", timeouts.prefill, call.deadline), resend=True)
            if answer.status != 200:
                raise verdict.of_answer("prefill", answer.status, answer.body)
            reply = legs.read_prefill(answer.body)
        self.praise(pod)
        prompt = reply.prompt.count
        self._metrics.prefilled(name, leg.seconds, prompt)
        call.visit.prompt += prompt - call.prompt_tokens  # once, however often it had to be made
        call.prompt_tokens = prompt
        made = Prefilled(self._releaser, pod, reply, call)
        if told or not made.finished:
            self._check_handover(made)
        return made

    def _check_handover(self, made: Prefilled) -> None:
        try:
            legs.check_handover(made.reply)
        except LegFailedError as failure:
            failure.pod = made.pod.uid
            with made:  # whatever KV there is nobody will read
                raise

    def decoding(self, call: Call, seat: Seat) -> Decoding:
        """One decode leg on the seat's pod, from its request to its end."""
        return Decoding(call, seat, self._load, self._metrics)

    def ask(self, call: Call, pod: Endpoint, body: bytes, clock: phase, *, resend: bool) -> Awaitable[Reply]:
        """An engine's whole answer to a leg; raises :class:`UpstreamError`, and what ``clock`` does."""
        return self._upstream.fetch(
            pod, legs.PATHS[call.ask.kind], call.headers, body, limit=self._settings.max_answer_bytes, resend=resend,
            connect=call.task.limits.timeouts.connect, within=clock,
        )  # fmt: skip

    def pulse(self, call: Call, pod: Endpoint, made: Prefilled) -> Pulse | None:
        """The clocks of a decode leg that is not streamed, where its pod can say how far it is."""
        if pod.info is None or not pod.info.tells_progress:
            return None
        return Pulse(
            self._upstream, pod, call.request_id, call.task.limits.timeouts, seeds=len(made.reply.output)
        )  # fmt: skip

    def praise(self, pod: Endpoint) -> None:
        """It did what a leg asked for: what was held against it is forgotten."""
        if self._load.failing:
            self._load.succeeded(pod.uid)

    def trust(self, pod: Endpoint) -> None:
        """It has begun to answer."""
        self._load.began(pod.uid)

    def note(self, call: Call, failure: LegFailedError | PhaseTimeoutError) -> None:
        """Remember which pod failed, for this request and, where it could not be reached, for the others."""
        if isinstance(failure, PhaseTimeoutError):
            self._metrics.timed_out(call.task.name, failure)
            if failure.phase != "request":  # a long answer is nobody's fault
                self.shun(call, failure.pod)
            return
        if failure.code == verdict.CONNECT_TIMEOUT:
            self._metrics.phase_timeouts.add(1, call.task.name, "connect")
        self._metrics.leg_failures.add(1, call.task.name, failure.leg, failure.code)
        if failure.avoid and failure.pod is not None:
            call.avoided.add(failure.pod)
        elif not failure.same_pod:
            self.shun(call, failure.pod, unreachable=failure.unreachable, busy=failure.code == verdict.BUSY)

    def shun(self, call: Call, pod: str | None, *, unreachable: bool = False, busy: bool = False) -> None:
        """No more of this request for ``pod`` (uid), as long as there is another; being ``busy`` is no fault."""
        if pod is not None:
            call.tried.add(pod)
            if not busy:
                self._load.failed(pod)
            if unreachable:
                self._load.suspect(pod)

    def _tokens(self, call: Call, prompt_tokens: int, told: Told | None) -> int:
        """KV tokens that the request may fill."""
        so_far = len(told.tokens) if told else 0
        return prompt_tokens + (call.ask.output_limit or so_far + self._settings.assumed_output_tokens)

    def _choose_prefill(self, call: Call, fingerprint: str | None, told: Told | None) -> Endpoint:
        load, pods = self._load, self._ways.of(self._fleet.snapshot, call.task.name, call.route).prefill
        alike = beginning(call.ask.body) if len(pods) > 1 else ""
        facts = prefill_policy.PrefillFacts(
            call.request_id, fingerprint, call.tried, call.avoided, alike, call.ask.prompt_tokens
        )
        choose = prefill_policy.choose_again if told else prefill_policy.choose
        choice = choose(
            facts, pods, load.prefill_tokens, load.suspects() if load.suspected else (),
            ejected=load.ejected() if load.failing else NOBODY,
        )  # fmt: skip
        if isinstance(choice, Reject):
            raise CircuitOpenError("prefill", choice.seconds) if choice.reason == "ejected" else _no_prefill()
        if load.failing:
            load.chosen(choice.endpoint.uid)
        return choice.endpoint


def _no_prefill() -> NoPrefillEndpointError:
    return NoPrefillEndpointError("This model is known, but no prefill pod is ready for it; try again later.")
