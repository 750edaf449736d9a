"""One client's request while it is served: let in, traced, and its use noted at its end."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType

from sunfleet_router.admission.gate import Entry, Visit
from sunfleet_router.telemetry.metrics import Metrics
from sunfleet_router.trace import Trace


class Served:
    """The context of a request, however many answers it wants; ``span``: where traces are on."""

    __slots__ = ("_entry", "_metrics", "_span", "_stream", "_visit")

    def __init__(
        self, span: AbstractContextManager[Trace] | None, entry: Entry, metrics: Metrics, *, stream: bool
    ) -> None:
        self._span = span
        self._entry = entry
        self._metrics = metrics
        self._stream = stream

    def __enter__(self) -> Visit:
        span = self._span
        if span is None:
            visit = self._visit = self._entry.__enter__()
            return visit
        trace = span.__enter__()
        try:
            visit = self._visit = self._entry.__enter__()
        except BaseException as refused:
            span.__exit__(type(refused), refused, refused.__traceback__)
            raise
        visit.trace = trace
        trace.note(
            gen_ai__request__model=visit.task.name, sunfleet__key=visit.key.name, sunfleet__stream=self._stream
        )  # fmt: skip
        return visit

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, traceback: TracebackType | None
    ) -> None:
        visit, span = self._visit, self._span
        try:
            if span is not None:
                visit.trace.note(gen_ai__usage__input_tokens=visit.prompt, gen_ai__usage__output_tokens=visit.output)
            self._metrics.used(visit)
        finally:
            self._entry.__exit__()
            if span is not None:
                span.__exit__(kind, failure, traceback)
