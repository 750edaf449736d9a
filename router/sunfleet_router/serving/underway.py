"""One engine call of a request while it is under way."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from sunfleet_router.admission.decode_room import Seat
from sunfleet_router.admission.load import Load
from sunfleet_router.engines import verdict
from sunfleet_router.errors import Leg, LegFailedError, PhaseTimeoutError
from sunfleet_router.fleet.snapshot import Endpoint
from sunfleet_router.serving.call import Call
from sunfleet_router.telemetry.metrics import Metrics
from sunfleet_router.transport.connection import UpstreamError


class UnderWay(ABC):
    """A context from a leg's request to its end: counted on its pod, a span of which the engine hears in its headers,
    and charged for its share of the pod's time; what fails in it is the pod's, and a broken exchange is what
    :mod:`verdict` makes of it. ``seconds``: how long it took. Classes, for every request enters two of them.
    """

    __slots__ = ("_began", "_call", "_load", "_metrics", "_span", "pod", "seconds")
    _span: AbstractContextManager[Mapping[str, str]] | None
    leg: Leg

    def __init__(self, call: Call, pod: Endpoint, load: Load, metrics: Metrics) -> None:
        self.pod = pod
        self._call = call
        self._load = load
        self._metrics = metrics

    @abstractmethod
    def count_in(self) -> None: ...

    @abstractmethod
    def count_out(self) -> float:
        """The share of the pod's time that the leg has had until now, from 0 to 1."""

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self.count_in()
        trace = self._call.visit.trace
        self._span = None
        if not trace.on:
            return self
        try:
            self._span = trace.phase(self.leg)
            if carried := self._span.__enter__():
                self._call.headers.update(carried)
        except BaseException:
            self.count_out()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, traceback: TracebackType | None
    ) -> None:
        error = failure
        if failure is not None and isinstance(failure, UpstreamError):
            error = verdict.of_exchange(self.leg, failure)
        try:
            if self._span is not None:
                self._span.__exit__(type(error) if error else None, error, traceback)
        finally:
            self.seconds = time.monotonic() - self._began
            charged = self.seconds * self.count_out() * self.pod.accelerators
            call, leg = self._call, self.leg
            self._metrics.gpu_seconds.add(charged, call.task.name, leg)
            call.visit.gpu_seconds[leg] += charged
            if error is not None and isinstance(error, LegFailedError | PhaseTimeoutError):
                error.pod = self.pod.uid
        if error is not None and error is not failure:
            raise error from failure


class Prefilling(UnderWay):
    """The pod's time is divided among the prompts that are there at once, by their tokens."""

    __slots__ = ()
    leg: Leg = "prefill"

    def count_in(self) -> None:
        call = self._call
        self._load.prefill_begins(self, self.pod.uid, call.ask.prompt_tokens, call.task.name)

    def count_out(self) -> float:
        call, uid = self._call, self.pod.uid
        tokens = call.ask.prompt_tokens
        share = tokens / (self._load.prefill_tokens.get(uid) or 1)
        self._load.prefill_ends(self, uid, tokens, call.task.name)
        return share


class Decoding(UnderWay):
    """The share of the pod's KV that is reserved."""

    __slots__ = ("_seat",)
    leg: Leg = "decode"

    def __init__(self, call: Call, seat: Seat, load: Load, metrics: Metrics) -> None:
        super().__init__(call, seat.endpoint, load, metrics)
        self._seat = seat

    def count_in(self) -> None:
        self._load.decode_begins(self.pod.uid)

    def count_out(self) -> float:
        self._load.decode_ends(self.pod.uid)
        tokens, capacity = self._seat.tokens, self.pod.capacity
        return tokens / capacity if tokens < capacity else 1.0
