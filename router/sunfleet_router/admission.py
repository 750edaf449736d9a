"""Decode room: reserved before the prefill starts, waited for in line, given back when the request ends, however it
ends.

One line per decoder, first come first served: a large request at its head holds the others back rather than starve.
Streams that broke off stand before everyone who has not begun, and wait for a pod where a new request would be told
that there is none. The decisions themselves are :mod:`sunfleet_router.policies.decode`; here are only the books and the
line.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from sunfleet_router.errors import BusyError, NoDecodeEndpointError, PhaseTimeoutError, RouterError
from sunfleet_router.fleet import Fleet
from sunfleet_router.load import Load
from sunfleet_router.policies import Choice, Reject, Wait
from sunfleet_router.policies import decode as policy
from sunfleet_router.snapshot import Endpoint, Snapshot, Task

_LOOK_AGAIN: Final = 0.25  # seconds: a pod that is no suspect any more tells nobody


@dataclass(frozen=True, slots=True)
class Claim:
    """A request's wish for decode room on a pod of ``decoder``, until the loop's time ``deadline``.

    ``resumed``: its client has got a part of the answer.
    """

    task: Task
    decoder: str
    facts: policy.DecodeFacts
    prompt_tokens: int  # part of the facts' tokens; for the queue's metric
    deadline: float = math.inf
    resumed: bool = False


class Seat:
    """Reserved room on one pod. ``settle`` corrects it once the prompt has been counted."""

    def __init__(self, admission: Admission, claim: Claim, endpoint: Endpoint) -> None:
        self._admission = admission
        self._claim = claim
        self.endpoint = endpoint
        self.tokens = claim.facts.tokens

    def settle(self, tokens: int, fingerprint: str) -> None:
        """Reserve ``tokens`` instead, on the same pod or, where it has left or is full meanwhile, on a better one.

        Never waits: the prefill's KV is held for this request. A pod a little over its room is better than that.
        """
        self._admission.resettle(self, self._claim, tokens, fingerprint)


@dataclass(slots=True)
class _Waiter:
    claim: Claim
    placed: asyncio.Future[Endpoint]


@dataclass(slots=True)
class _Line:
    """Who waits for one decoder."""

    resumed: deque[_Waiter] = field(default_factory=deque)
    new: deque[_Waiter] = field(default_factory=deque)
    timer: asyncio.TimerHandle | None = None

    @property
    def tokens(self) -> int:
        return sum(waiter.claim.facts.tokens for waiter in (*self.resumed, *self.new))

    def part(self, claim: Claim) -> deque[_Waiter]:
        return self.resumed if claim.resumed else self.new


class Admission:
    """One per process. ``most_waiting`` bounds all lines together; each task has its own bound and patience besides."""

    def __init__(self, fleet: Fleet, load: Load, *, most_waiting: int) -> None:
        self._fleet = fleet
        self._load = load
        self._most_waiting = most_waiting
        self._lines: dict[str, _Line] = {}
        self.reserved: Counter[str] = Counter()  # pod uid -> KV tokens
        self.waiting: Counter[str] = Counter()  # task -> requests
        self.waiting_tokens: Counter[str] = Counter()  # task -> prompt tokens
        fleet.on_change(self._fleet_changed)

    @property
    def queued_tokens(self) -> Counter[str]:
        """Decoder -> KV tokens that requests wait for there."""
        return Counter({name: line.tokens for name, line in self._lines.items()})

    @asynccontextmanager
    async def reserve(self, claim: Claim) -> AsyncIterator[Seat]:
        """Room on a decode pod, perhaps after waiting.

        Raises :class:`NoDecodeEndpointError` when no pod could ever take it, :class:`BusyError` when the line is full
        or too slow, and :class:`PhaseTimeoutError` when the request's own time is over.
        """
        seat = Seat(self, claim, await self._place(claim))
        try:
            yield seat
        finally:
            self._add(seat.endpoint.uid, -seat.tokens)
            self._serve(claim.decoder)

    def resettle(self, seat: Seat, claim: Claim, tokens: int, fingerprint: str) -> None:
        """See :meth:`Seat.settle`."""
        self._add(seat.endpoint.uid, -seat.tokens)
        facts = replace(claim.facts, tokens=tokens, fingerprints=(fingerprint,))
        pool = self._fleet.snapshot.pool(claim.decoder)
        stay = [pod for pod in pool if pod.uid == seat.endpoint.uid and pod.fingerprint == fingerprint]
        for candidates in (stay, pool):
            choice = policy.choose(facts, candidates, self.reserved, self._load.suspects())
            if isinstance(choice, Choice):
                seat.endpoint = choice.endpoint
                break
        seat.tokens = tokens
        self._add(seat.endpoint.uid, tokens)
        self._serve(claim.decoder)

    async def _place(self, claim: Claim) -> Endpoint:
        if claim.decoder not in self._lines:
            choice = self._choose(claim)
            if isinstance(choice, Choice) or (isinstance(choice, Reject) and not claim.resumed):
                return self._book(claim, choice)
        return await self._wait(claim)

    async def _wait(self, claim: Claim) -> Endpoint:
        limits, name = claim.task.limits, claim.task.name
        full = self.waiting[name] >= limits.queue_requests or self.waiting.total() >= self._most_waiting
        if full and not claim.resumed:  # those have been counted when they came
            raise BusyError("Too many requests are waiting for this model; try again in a moment.", code="queue_full")
        loop = asyncio.get_running_loop()
        waiter, patience = _Waiter(claim, loop.create_future()), loop.time() + limits.queue_ttl
        self._lines.setdefault(claim.decoder, _Line()).part(claim).append(waiter)
        self.waiting[name] += 1
        self.waiting_tokens[name] += claim.prompt_tokens
        try:
            self._serve(claim.decoder)
            async with asyncio.timeout_at(min(patience, claim.deadline)):
                return await waiter.placed
        except TimeoutError:
            self._unbook(waiter)
            if claim.deadline <= patience:  # not by the clock: timers may come a little early
                raise PhaseTimeoutError("request", limits.timeouts.request) from None
            message = f"No room became free within {limits.queue_ttl:g} s; try again in a moment."
            raise BusyError(message, code="queue_timeout") from None
        except asyncio.CancelledError:
            self._unbook(waiter)
            raise
        finally:
            self._leave(waiter)

    def _leave(self, waiter: _Waiter) -> None:
        claim = waiter.claim
        _take(self.waiting, claim.task.name, 1)
        _take(self.waiting_tokens, claim.task.name, claim.prompt_tokens)
        line = self._lines.get(claim.decoder)
        if line is not None and waiter in line.part(claim):
            line.part(claim).remove(waiter)
        self._serve(claim.decoder)

    def _unbook(self, waiter: _Waiter) -> None:
        """Placed in the very moment in which it gave up: nobody will sit there."""
        if waiter.placed.done() and not waiter.placed.cancelled() and waiter.placed.exception() is None:
            self._add(waiter.placed.result().uid, -waiter.claim.facts.tokens)

    def _serve(self, decoder: str) -> None:
        """Place from the head of a line for as long as there is room."""
        line = self._lines.get(decoder)
        if line is None:
            return
        if self._serve_resumed(line):
            self._serve_new(line)
        if line.resumed and line.timer is None:
            line.timer = asyncio.get_running_loop().call_later(_LOOK_AGAIN, self._look_again, decoder)
        if not line.resumed and not line.new:
            if line.timer is not None:
                line.timer.cancel()
            del self._lines[decoder]

    def _serve_resumed(self, line: _Line) -> bool:
        """Whether those behind may be served. One that no pod can take at present holds nobody back."""
        for waiter in tuple(line.resumed):
            choice = self._choose(waiter.claim)
            if isinstance(choice, Wait):
                return False
            if isinstance(choice, Choice):
                line.resumed.remove(waiter)
                self._seat(waiter, choice)
        return True

    def _serve_new(self, line: _Line) -> None:
        while line.new:
            choice = self._choose(line.new[0].claim)
            if isinstance(choice, Wait):
                return
            self._seat(line.new.popleft(), choice)

    def _seat(self, waiter: _Waiter, choice: Choice | Reject) -> None:
        if waiter.placed.done():
            return  # it has just given up
        try:
            waiter.placed.set_result(self._book(waiter.claim, choice))
        except RouterError as error:
            waiter.placed.set_exception(error)

    def _choose(self, claim: Claim) -> Choice | Wait | Reject:
        pool = self._fleet.snapshot.pool(claim.decoder)
        choose = policy.choose_again if claim.resumed else policy.choose
        return choose(claim.facts, pool, self.reserved, self._load.suspects())

    def _book(self, claim: Claim, choice: Choice | Reject) -> Endpoint:
        if isinstance(choice, Reject):
            raise NoDecodeEndpointError("No decode pod is ready for this model at the moment; try again in a moment.")
        self._add(choice.endpoint.uid, claim.facts.tokens)
        return choice.endpoint

    def _add(self, uid: str, tokens: int) -> None:
        _take(self.reserved, uid, -tokens)

    def _look_again(self, decoder: str) -> None:
        line = self._lines.get(decoder)
        if line is not None:
            line.timer = None
            self._serve(decoder)

    def _fleet_changed(self, _: Snapshot) -> None:
        for decoder in list(self._lines):
            self._serve(decoder)


def _take(counter: Counter[str], key: str, amount: int) -> None:
    counter[key] -= amount
    if not counter[key]:
        del counter[key]
