"""Who may begin: requests in flight, and requests and tokens per minute, of each task and of each API key.

The tokens of a request are taken at its start as they are reserved, prompt and largest output, and what was not used is
given back at its end: a key cannot start more than it could pay for.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from sunfleet_router.admission.load import Load
from sunfleet_router.errors import BusyError, Leg
from sunfleet_router.fleet.current import Fleet
from sunfleet_router.fleet.replicas import Replicas
from sunfleet_router.fleet.snapshot import Rate, Snapshot, Task
from sunfleet_router.keys.key import Key
from sunfleet_router.policies.rate import Bucket
from sunfleet_router.trace import OFF, Trace

Owner = Literal["task", "key"]
_NO_TIME: Final[dict[Leg, float]] = {"prefill": 0.0, "decode": 0.0}
_WORDS = {"task": "This model", "key": "This API key"}


@dataclass(slots=True)
class Visit:
    """One client's request while it is served, and what it has used so far: tokens that its prefills counted, each
    prompt once, tokens that its decoders made, and its share of the engines' time.
    """

    task: Task
    key: Key
    prompt: int = 0
    output: int = 0
    trace: Trace = OFF
    gpu_seconds: dict[Leg, float] = field(default_factory=_NO_TIME.copy)


class Gate:
    """One per process. Rates begin anew with the process: their memory is a minute long anyway."""

    def __init__(
        self, fleet: Fleet, load: Load, replicas: Replicas, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._load = load
        self._replicas = replicas
        self._clock = clock
        self._buckets: dict[tuple[Owner, str, str], Bucket] = {}
        self.keys: Counter[str] = Counter()  # key -> requests in flight
        fleet.on_change(self._tidy)

    def enter(self, task: Task, key: Key, tokens: int) -> Entry:
        """A context for one request that may need ``tokens``; raises :class:`BusyError` with the limit that it met."""
        return Entry(self, Visit(task, key), tokens)

    def begin(self, visit: Visit, tokens: int) -> list[Bucket]:
        """Count a request in; the buckets that get back what it does not use."""
        task, key = visit.task, visit.key
        if key.max_in_flight is not None:
            self._check("key", key.max_in_flight, self.keys.get(key.name, 0))
        if task.limits.max_in_flight is not None:
            self._check("task", task.limits.max_in_flight, self._load.requests.get(task.name, 0))
        taken = [] if task.limits.rate.free and key.rate.free else self._take(task, key, tokens)
        self._load.request_begins(task)
        self.keys[key.name] += 1
        return taken

    def end(self, visit: Visit, tokens: int, taken: Iterable[Bucket]) -> None:
        """Its end."""
        name = visit.key.name
        self.keys[name] -= 1
        if not self.keys[name]:
            del self.keys[name]
        for bucket in taken:
            bucket.give_back(tokens - visit.prompt - visit.output)
        self._load.request_ends(visit.task)

    def _check(self, owner: Owner, limit: int, in_flight: int) -> None:
        if in_flight >= self._replicas.part(limit):
            code = "too_many_in_flight" if owner == "task" else "key_too_many_in_flight"
            message = f"{_WORDS[owner]} may have {limit} requests in flight{self._shared()}; try again in a moment."
            raise BusyError(message, code=code)

    def _shared(self) -> str:
        return f" ({self._replicas.count} routers share them)" if self._replicas.count > 1 else ""

    def _take(self, task: Task, key: Key, tokens: int) -> list[Bucket]:
        """The token buckets that were charged. All or nothing: a refusal by the last one costs nothing at the first."""
        taken: list[tuple[str, Bucket, int]] = []
        owners: tuple[tuple[Owner, str, Rate], ...] = (
            ("task", task.name, task.limits.rate),
            ("key", key.name, key.rate),
        )
        for owner, name, rate in owners:
            for unit, per_minute, cost in (("requests", rate.requests, 1), ("tokens", rate.tokens, tokens)):
                if per_minute is None:
                    continue
                bucket = self._bucket((owner, name, unit), self._replicas.rate(per_minute))
                seconds = bucket.take(cost, self._clock())
                if seconds:
                    for _, other, paid in taken:
                        other.give_back(paid)
                    raise _too_fast(owner, unit, f"{per_minute} {unit} per minute{self._shared()}", seconds)
                taken.append((unit, bucket, cost))
        return [bucket for unit, bucket, _ in taken if unit == "tokens"]

    def _bucket(self, name: tuple[Owner, str, str], per_minute: float) -> Bucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = Bucket(per_minute, self._clock())
        bucket.resize(per_minute, self._clock())
        return bucket

    def _tidy(self, _: Snapshot) -> None:
        """Forget what nobody has used for a minute."""
        now = self._clock()
        self._buckets = {name: bucket for name, bucket in self._buckets.items() if not bucket.is_full(now)}


class Entry:
    """One request's context."""

    __slots__ = ("_gate", "_taken", "_tokens", "_visit")

    def __init__(self, gate: Gate, visit: Visit, tokens: int) -> None:
        self._gate = gate
        self._visit = visit
        self._tokens = tokens

    def __enter__(self) -> Visit:
        self._taken = self._gate.begin(self._visit, self._tokens)
        return self._visit

    def __exit__(self, *_: object) -> None:
        self._gate.end(self._visit, self._tokens, self._taken)


def _too_fast(owner: Owner, unit: str, limit: str, seconds: float) -> BusyError:
    wait = max(1, math.ceil(seconds))
    message = f"{_WORDS[owner]} may use {limit}; try again in {wait} s."
    code = f"{unit}_per_minute" if owner == "task" else f"key_{unit}_per_minute"
    return BusyError(message, code=code, retry_after=wait)
