"""One trace for each request, one span for each of its phases; nothing at all where traces are off.

The protocol that the rest of the router sees. :mod:`sunfleet_router.telemetry.tracing` makes the real
ones; it alone needs the OpenTelemetry packages.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Protocol

Attributes = Mapping[str, str | int | float | bool]


class Trace(Protocol):
    """The span of one client's request, and the phases in it. ``on``: whether there are any; what every request does
    several times looks first.
    """

    on: bool

    def phase(self, name: str, **attributes: str | int | float | bool) -> AbstractContextManager[Mapping[str, str]]:
        """A span from here to the end of the context, which an error that leaves it marks. Yields the headers that make
        an engine's spans its children; none where traces are off.
        """

    def note(self, **attributes: str | int | float | bool) -> None:
        """More about the request, at its span."""


class Tracer(Protocol):
    """One per process. ``on``: as :class:`Trace`."""

    on: bool

    def request(self, name: str, headers: Mapping[str, str]) -> AbstractContextManager[Trace]:
        """The trace of a request with these headers: part of the client's own if it has one."""

    def close(self) -> None:
        """Send what has not been sent yet; may take seconds."""


class _Off:
    """Traces are off: no span, no allocation, and a client's own headers go on to the engines as they came."""

    on = False

    def __init__(self) -> None:
        self._phase: AbstractContextManager[Mapping[str, str]] = nullcontext({})
        self._trace: AbstractContextManager[Trace] = nullcontext(self)

    def request(self, name: str, headers: Mapping[str, str]) -> AbstractContextManager[Trace]:  # noqa: ARG002 Tracer
        return self._trace

    def phase(self, name: str, **attributes: Any) -> AbstractContextManager[Mapping[str, str]]:  # noqa: ARG002 Trace
        return self._phase

    def note(self, **attributes: Any) -> None:
        pass

    def close(self) -> None:
        pass


OFF: Final = _Off()
