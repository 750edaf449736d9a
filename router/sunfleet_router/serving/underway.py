"""One engine call of a request while it is under way."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from sunfleet_router.admission.decode_room import Seat
from sunfleet_router.admission.load import Counting, Load
from sunfleet_router.errors import Leg, LegFailedError, PhaseTimeoutError
from sunfleet_router.fleet.snapshot import Endpoint
from sunfleet_router.serving.call import Call
from sunfleet_router.telemetry.metrics import Metrics


class UnderWay(ABC):
    """A context from a leg's request to its end: counted on its pod, a span of which the engine hears in its headers,
    and charged for its share of the pod's time; what fails in it is the pod's. ``seconds``: how long it took. Classes,
    for every request enters two of them.
    """

    __slots__ = ("_began", "_call", "_count", "_metrics", "_span", "pod", "seconds")
    _span: AbstractContextManager[Mapping[str, str]] | None
    leg: Leg

    def __init__(self, call: Call, pod: Endpoint, count: Counting, metrics: Metrics) -> None:
        self.pod = pod
        self._call = call
        self._count = count
        self._metrics = metrics

    @abstractmethod
    def share(self) -> float:
        """Of the pod's time, from 0 to 1."""

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self._count.enter()
        trace = self._call.visit.trace
        self._span = None
        if not trace.on:
            return self
        try:
            self._span = trace.phase(self.leg)
            if carried := self._span.__enter__():
                self._call.headers.update(carried)
        except BaseException:
            self._count.leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._span is not None:
                self._span.__exit__(kind, failure, traceback)
        finally:
            self.seconds = time.monotonic() - self._began
            charged = self.seconds * self.share() * self.pod.accelerators
            self._count.leave()
            call, leg = self._call, self.leg
            self._metrics.gpu_seconds.add(charged, call.task.name, leg)
            call.visit.gpu_seconds[leg] += charged
            if failure is not None and isinstance(failure, LegFailedError | PhaseTimeoutError):
                failure.pod = self.pod.uid


class Prefilling(UnderWay):
    """The pod's time is divided among the prompts that are there at once, by their tokens."""

    __slots__ = ("_load",)
    leg: Leg = "prefill"

    def __init__(self, call: Call, pod: Endpoint, load: Load, metrics: Metrics) -> None:
        super().__init__(call, pod, load.prefill(pod, call.ask.prompt_tokens, call.task.name), metrics)
        self._load = load

    def share(self) -> float:
        return self._call.ask.prompt_tokens / (self._load.prefill_tokens.get(self.pod.uid) or 1)


class Decoding(UnderWay):
    """The share of the pod's KV that is reserved."""

    __slots__ = ("_seat",)
    leg: Leg = "decode"

    def __init__(self, call: Call, seat: Seat, load: Load, metrics: Metrics) -> None:
        super().__init__(call, seat.endpoint, load.decode(seat.endpoint), metrics)
        self._seat = seat

    def share(self) -> float:
        tokens, capacity = self._seat.tokens, self.pod.capacity
        return tokens / capacity if tokens < capacity else 1.0
