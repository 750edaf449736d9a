"""Decode room: reserved before the prefill starts, waited for in line, given back when the request ends, however it
ends.

One line per decoder; :mod:`sunfleet_router.admission.line` says who is next. A large request that is next holds the
others back rather than starve. Streams that broke off wait for a pod where a new request would be told that there is
none. Where there is room is decided by :mod:`sunfleet_router.policies.decode`; here are only the books and the line.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Self

from sunfleet_router.admission.claim import Claim
from sunfleet_router.admission.line import Line, Waiter
from sunfleet_router.admission.load import Load
from sunfleet_router.admission.waiting import Waiting
from sunfleet_router.errors import (
    QUEUE_TIMEOUT,
    BusyError,
    CircuitOpenError,
    NoDecodeEndpointError,
    PhaseTimeoutError,
    RouterError,
)
from sunfleet_router.fleet.current import Fleet
from sunfleet_router.fleet.snapshot import Endpoint, Snapshot
from sunfleet_router.policies import NOBODY, Choice, Reject, Wait
from sunfleet_router.policies import decode as policy
from sunfleet_router.policies.fair import FairShare

_LOOK_AGAIN: Final = 0.25  # seconds: a pod that is no suspect any more, or not ejected, tells nobody


class Seat:
    """Reserved room on one pod, charged to the task, until the end of its context. ``settle`` corrects it once the
    prompt has been counted.

    ``spent``: the tokens of it that were used in the end; the task is charged for no more. ``waited``: seconds for it.
    """

    def __init__(self, admission: Admission, claim: Claim, endpoint: Endpoint, waited: float = 0.0) -> None:
        self._admission = admission
        self._claim = claim
        self.endpoint = endpoint
        self.tokens = claim.facts.tokens
        self.spent = 0
        self.waited = waited

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._admission.give_back(self, self._claim)

    def settle(self, tokens: int, fingerprint: str) -> None:
        """Reserve ``tokens`` instead, on the same pod or, where it has left or is full meanwhile, on a better one.

        Never waits: the prefill's KV is held for this request. A pod a little over its room is better than that.
        """
        self._admission.resettle(self, self._claim, tokens, fingerprint)


class Admission:
    """One per process; ``waiting`` bounds all lines together and each task's part of them."""

    def __init__(self, fleet: Fleet, load: Load, waiting: Waiting) -> None:
        self._fleet = fleet
        self._load = load
        self._lines: dict[str, Line] = {}
        self._shares: dict[str, FairShare] = {}
        self.waiting = waiting
        self.reserved: Counter[str] = Counter()  # pod uid -> KV tokens
        self.others: Counter[str] = Counter()  # pod uid -> KV tokens of other routers' requests
        self.queued_tokens: Counter[str] = Counter()  # decoder -> KV tokens that are waited for
        fleet.on_change(self._fleet_changed)

    async def reserve(self, claim: Claim) -> Seat:
        """Room on a decode pod, perhaps after waiting; a context that gives it back.

        Raises :class:`NoDecodeEndpointError` when no pod could ever take it, :class:`CircuitOpenError` when all that
        could keep failing, :class:`BusyError` or
        :class:`OverloadedError` when the line is full or too slow, and :class:`PhaseTimeoutError` when the request's
        own time is over.
        """
        seat = self.at_once(claim)
        if seat is not None:
            return seat
        began = time.monotonic()
        with self.waiting.one(claim):
            return Seat(self, claim, await self._wait(claim), time.monotonic() - began)

    def at_once(self, claim: Claim) -> Seat | None:
        """As :meth:`reserve` where nobody has to wait; ``None`` where one has."""
        if claim.decoder in self._lines:
            return None
        choice = self._choose(claim)
        if not isinstance(choice, Choice) and (claim.resumed or isinstance(choice, Wait)):
            return None
        share = self._shares.get(claim.decoder) or self._share(claim.decoder)
        share.passed(claim.task.name)
        return Seat(self, claim, self._book(claim, choice))

    def give_back(self, seat: Seat, claim: Claim) -> None:
        """The end of a seat."""
        _take(self.reserved, seat.endpoint.uid, seat.tokens)
        share = self._shares.get(claim.decoder) or self._share(claim.decoder)
        share.charge(claim.task.name, seat.spent - seat.tokens, claim.task.limits.weight)
        if self._lines:
            self._serve(claim.decoder)

    def others_have(self, tokens: Mapping[str, int]) -> None:
        """KV tokens by pod uid that requests of other routers hold, as the engines show it."""
        if tokens or self.others:
            self.others = Counter(tokens)  # once a look, not once a choice
            for decoder in list(self._lines):
                self._serve(decoder)

    def resettle(self, seat: Seat, claim: Claim, tokens: int, fingerprint: str) -> None:
        """See :meth:`Seat.settle`."""
        uid, load = seat.endpoint.uid, self._load
        _take(self.reserved, uid, seat.tokens)
        pool = self._fleet.snapshot.pools.get(claim.decoder, ())
        taken = self.reserved + self.others if self.others else self.reserved
        ejected = load.ejected() if load.failing else NOBODY
        present = None
        for pod in pool:
            if pod.uid == uid and pod.fingerprint == fingerprint:
                present = pod
        well = not ejected or ejected.get(uid, 0.0) <= 0 or load.on_trial(uid)
        stays = present is not None and well and uid not in claim.facts.tried
        if present is not None and stays and policy.fits(tokens, present, taken):
            seat.endpoint = present
        else:
            facts = replace(claim.facts, tokens=tokens, fingerprints=(fingerprint,))
            choice = policy.choose(facts, pool, taken, load.suspects(), ejected=ejected, two=bool(self.others))
            if isinstance(choice, Choice):
                seat.endpoint = choice.endpoint
        share = self._shares.get(claim.decoder) or self._share(claim.decoder)
        share.charge(claim.task.name, tokens - seat.tokens, claim.task.limits.weight)
        seat.tokens = tokens
        self.reserved[seat.endpoint.uid] += tokens
        if self._lines:
            self._serve(claim.decoder)

    async def _wait(self, claim: Claim) -> Endpoint:
        ttl = claim.task.limits.queue_ttl
        loop = asyncio.get_running_loop()
        waiter, patience = Waiter(claim, loop.create_future()), loop.time() + ttl
        self._lines.setdefault(claim.decoder, Line(self._share(claim.decoder))).join(waiter)
        _take(self.queued_tokens, claim.decoder, -claim.facts.tokens)
        try:
            self._serve(claim.decoder)
            async with asyncio.timeout_at(min(patience, claim.deadline)):
                return await waiter.placed
        except TimeoutError:
            self._unbook(waiter)
            if claim.deadline <= patience:  # not by the clock: timers may come a little early
                raise PhaseTimeoutError("request", claim.task.limits.timeouts.request) from None
            message = f"No room became free within {ttl:g} s; try again in a moment."
            raise BusyError(message, code=QUEUE_TIMEOUT) from None
        except asyncio.CancelledError:
            self._unbook(waiter)
            raise
        finally:
            self._leave(waiter)

    def _leave(self, waiter: Waiter) -> None:
        decoder = waiter.claim.decoder
        _take(self.queued_tokens, decoder, waiter.claim.facts.tokens)
        if waiter.in_line:
            self._lines[decoder].leave(waiter)
        self._serve(decoder)

    def _unbook(self, waiter: Waiter) -> None:
        """Placed in the very moment in which it gave up: nobody will sit there."""
        if waiter.placed.done() and not waiter.placed.cancelled() and waiter.placed.exception() is None:
            _take(self.reserved, waiter.placed.result().uid, waiter.claim.facts.tokens)
            claim = waiter.claim
            self._share(claim.decoder).charge(claim.task.name, -claim.facts.tokens, claim.task.limits.weight)

    def _serve(self, decoder: str) -> None:
        """Place from the head of a line for as long as there is room."""
        line = self._lines.get(decoder)
        if line is None:
            return
        if self._serve_resumed(line):
            self._serve_new(line)
        if line and line.timer is None and (line.resumed or self._load.ejected()):
            line.timer = asyncio.get_running_loop().call_later(_LOOK_AGAIN, self._look_again, decoder)
        if not line:
            if line.timer is not None:
                line.timer.cancel()
            del self._lines[decoder]

    def _serve_resumed(self, line: Line) -> bool:
        """Whether those behind may be served. One that no pod can take at present holds nobody back."""
        for waiter in tuple(line.resumed):
            choice = self._choose(waiter.claim)
            if isinstance(choice, Wait):
                return False
            if isinstance(choice, Choice):
                self._seat(line, waiter, choice)
        return True

    def _serve_new(self, line: Line) -> None:
        """One that must wait holds back those who could take the room that it waits for."""
        held: set[str] = set()
        while (waiter := line.next(held)) is not None:
            choice = self._choose(waiter.claim)
            if isinstance(choice, Wait):
                held.update(waiter.claim.facts.fingerprints)
            else:
                self._seat(line, waiter, choice)

    def _seat(self, line: Line, waiter: Waiter, choice: Choice | Reject) -> None:
        line.leave(waiter)
        if waiter.placed.done():
            return  # it has just given up
        try:
            waiter.placed.set_result(self._book(waiter.claim, choice))
        except RouterError as error:
            waiter.placed.set_exception(error)

    def _choose(self, claim: Claim) -> Choice | Wait | Reject:
        load = self._load  # what is mostly nothing is looked at, not asked for: this is in every request
        choose = policy.choose_again if claim.resumed else policy.choose
        return choose(
            claim.facts, self._fleet.snapshot.pools.get(claim.decoder, ()),
            self.reserved + self.others if self.others else self.reserved,
            load.suspects() if load.suspected else (), ejected=load.ejected() if load.failing else NOBODY,
            two=bool(self.others),
        )  # fmt: skip

    def _book(self, claim: Claim, choice: Choice | Reject) -> Endpoint:
        if isinstance(choice, Reject):
            if choice.reason == "ejected":
                raise CircuitOpenError("decode", choice.seconds)
            raise NoDecodeEndpointError("No decode pod is ready for this model at the moment; try again in a moment.")
        tokens = claim.facts.tokens
        self.reserved[choice.endpoint.uid] += tokens
        share = self._shares.get(claim.decoder) or self._share(claim.decoder)
        share.charge(claim.task.name, tokens, claim.task.limits.weight)
        if self._load.failing:
            self._load.chosen(choice.endpoint.uid)
        return choice.endpoint

    def _share(self, decoder: str) -> FairShare:
        share = self._shares.get(decoder)
        if share is None:
            share = self._shares[decoder] = FairShare()
        return share

    def _look_again(self, decoder: str) -> None:
        line = self._lines.get(decoder)
        if line is not None:
            line.timer = None
            self._serve(decoder)

    def _fleet_changed(self, snapshot: Snapshot) -> None:
        for decoder in list(self._lines):
            self._serve(decoder)
        self._shares = {name: share for name, share in self._shares.items() if name in snapshot.pools}
        for share in self._shares.values():
            share.keep(snapshot.tasks)


def _take(counter: Counter[str], key: str, amount: int) -> None:
    counter[key] -= amount
    if not counter[key]:
        del counter[key]
