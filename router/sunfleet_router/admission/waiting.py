"""Who waits for a place, counted by task, and how many may: by requests, tokens and bytes, of one task and in all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sunfleet_router.admission.claim import Claim
from sunfleet_router.errors import BusyError, OverloadedError
from sunfleet_router.fleet.replicas import Replicas


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of all tasks together in this process. Bytes are those of request bodies: what a long line costs this process."""

    requests: int
    tokens: int
    size: int


class Waiting:
    """One per process: the same books for those who wait for a decode pod and for a prefill pod."""

    def __init__(self, most: Bounds, replicas: Replicas) -> None:
        self._most = most
        self._replicas = replicas
        self.requests: Counter[str] = Counter()  # by task
        self.prompt_tokens: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()  # prompt and output
        self.size: Counter[str] = Counter()

    @contextmanager
    def one(self, claim: Claim) -> Iterator[None]:
        """Count one that waits; raises :class:`BusyError` or :class:`OverloadedError` where there is no place for it.

        A stream that has begun always has one: it was counted when it came.
        """
        if not claim.resumed:
            self._check(claim)
        counts = (
            (self.requests, 1), (self.prompt_tokens, claim.prompt_tokens), (self.tokens, claim.facts.tokens),
            (self.size, claim.size),
        )  # fmt: skip
        name = claim.task.name
        for counter, amount in counts:
            counter[name] += amount
        try:
            yield
        finally:
            for counter, amount in counts:
                counter[name] -= amount
            if not self.requests[name]:
                for counter, _ in counts:
                    del counter[name]

    def _check(self, claim: Claim) -> None:
        limits, name = claim.task.limits, claim.task.name
        mine = (self.requests[name] + 1, self.tokens[name] + claim.facts.tokens, self.size[name] + claim.size)
        for value, limit in zip(mine, (limits.queue_requests, limits.queue_tokens, limits.queue_bytes), strict=True):
            most = self._replicas.part(limit)
            if most is not None and value > most:
                message = "Too many requests are waiting for this model; try again in a moment."
                raise BusyError(message, code="queue_full")
        every = (self.requests.total() + 1, self.tokens.total() + claim.facts.tokens, self.size.total() + claim.size)
        for value, most in zip(every, (self._most.requests, self._most.tokens, self._most.size), strict=True):
            if value > most:
                raise OverloadedError("Too many requests are waiting here; try again in a moment.")
