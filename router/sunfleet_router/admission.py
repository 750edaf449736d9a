"""Decode room: reserved before the prefill starts, waited for in line, given back when the request ends, however it
ends.

One line per decoder, first come first served: a large request at its head holds the others back rather than starve. The
decision itself is :func:`sunfleet_router.policies.decode.choose`; here are only the books and the line.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sunfleet_router.errors import BusyError, NoDecodeEndpointError, RouterError
from sunfleet_router.fleet import Fleet
from sunfleet_router.load import Load
from sunfleet_router.policies import Choice, Reject, Wait
from sunfleet_router.policies import decode as policy
from sunfleet_router.snapshot import Endpoint, Snapshot, Task


@dataclass(frozen=True, slots=True)
class Claim:
    """A request's wish for decode room on a pod of ``decoder``."""

    task: Task
    decoder: str
    facts: policy.DecodeFacts
    prompt_tokens: int  # part of the facts' tokens; for the queue's metric


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


class Admission:
    """One per process. ``most_waiting`` bounds all lines together; each task has its own bound and patience besides."""

    def __init__(self, fleet: Fleet, load: Load, *, most_waiting: int) -> None:
        self._fleet = fleet
        self._load = load
        self._most_waiting = most_waiting
        self._lines: dict[str, deque[_Waiter]] = {}
        self.reserved: Counter[str] = Counter()  # pod uid -> KV tokens
        self.waiting: Counter[str] = Counter()  # task -> requests
        self.waiting_tokens: Counter[str] = Counter()  # task -> prompt tokens
        fleet.on_change(self._fleet_changed)

    @asynccontextmanager
    async def reserve(self, claim: Claim) -> AsyncIterator[Seat]:
        """Room on a decode pod, perhaps after waiting.

        Raises :class:`NoDecodeEndpointError` when no pod could ever take it and :class:`BusyError` when the line is
        full or too slow.
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
        facts = policy.DecodeFacts(claim.facts.request_id, tokens, (fingerprint,), claim.facts.tried)
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
        line = self._lines.get(claim.decoder)
        if not line:
            choice = self._choose(claim)
            if not isinstance(choice, Wait):
                return self._book(claim, choice)
        return await self._wait(claim)

    async def _wait(self, claim: Claim) -> Endpoint:
        limits, name = claim.task.limits, claim.task.name
        if self.waiting[name] >= limits.queue_requests or self.waiting.total() >= self._most_waiting:
            raise BusyError("Too many requests are waiting for this model; try again in a moment.", code="queue_full")
        waiter = _Waiter(claim, asyncio.get_running_loop().create_future())
        line = self._lines.setdefault(claim.decoder, deque())
        line.append(waiter)
        self.waiting[name] += 1
        self.waiting_tokens[name] += claim.prompt_tokens
        try:
            async with asyncio.timeout(limits.queue_ttl):
                return await waiter.placed
        except TimeoutError:
            self._unbook(waiter)
            message = f"No room became free within {limits.queue_ttl:g} s; try again in a moment."
            raise BusyError(message, code="queue_timeout") from None
        except asyncio.CancelledError:
            self._unbook(waiter)
            raise
        finally:
            self._leave(claim.decoder, waiter)

    def _leave(self, decoder: str, waiter: _Waiter) -> None:
        name = waiter.claim.task.name
        _take(self.waiting, name, 1)
        _take(self.waiting_tokens, name, waiter.claim.prompt_tokens)
        line = self._lines.get(decoder)
        if line is not None and waiter in line:
            line.remove(waiter)
        self._serve(decoder)

    def _unbook(self, waiter: _Waiter) -> None:
        """Placed in the very moment in which it gave up: nobody will sit there."""
        if waiter.placed.done() and not waiter.placed.cancelled() and waiter.placed.exception() is None:
            self._add(waiter.placed.result().uid, -waiter.claim.facts.tokens)

    def _serve(self, decoder: str) -> None:
        """Place from the head of a line for as long as there is room."""
        line = self._lines.get(decoder)
        while line:
            waiter = line[0]
            if not waiter.placed.done():
                choice = self._choose(waiter.claim)
                if isinstance(choice, Wait):
                    return
                try:
                    waiter.placed.set_result(self._book(waiter.claim, choice))
                except RouterError as error:
                    waiter.placed.set_exception(error)
            line.popleft()
        self._lines.pop(decoder, None)

    def _choose(self, claim: Claim) -> Choice | Wait | Reject:
        pool = self._fleet.snapshot.pool(claim.decoder)
        return policy.choose(claim.facts, pool, self.reserved, self._load.suspects())

    def _book(self, claim: Claim, choice: Choice | Reject) -> Endpoint:
        if isinstance(choice, Reject):
            raise NoDecodeEndpointError("No decode pod is ready for this model at the moment; try again in a moment.")
        self._add(choice.endpoint.uid, claim.facts.tokens)
        return choice.endpoint

    def _add(self, uid: str, tokens: int) -> None:
        _take(self.reserved, uid, -tokens)

    def _fleet_changed(self, _: Snapshot) -> None:
        for decoder in list(self._lines):
            self._serve(decoder)


def _take(counter: Counter[str], key: str, amount: int) -> None:
    counter[key] -= amount
    if not counter[key]:
        del counter[key]
