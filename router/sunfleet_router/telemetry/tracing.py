"""Traces by OpenTelemetry, over OTLP/HTTP; where to and how many is said by its own ``OTEL_*`` variables.

Spans are ended on the event loop and sent by a thread of the SDK's. Nothing of a prompt or an answer is in them.
Imported only when traces are on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import trace as api
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from sunfleet_router.errors import RouterError
from sunfleet_router.trace import Trace

_PROPAGATOR = TraceContextTextMapPropagator()
_NO_NAME = "unknown_service"


class Tracing:
    """The real tracer. ``processor``: what gets the ended spans; by default a batch at a time goes to the collector."""

    on = True

    def __init__(self, processor: SpanProcessor | None = None) -> None:
        resource = Resource.create()
        if str(resource.attributes.get(SERVICE_NAME, _NO_NAME)).startswith(_NO_NAME):
            resource = resource.merge(Resource({SERVICE_NAME: "sunfleet-router"}))
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor or BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("sunfleet_router")

    @contextmanager
    def request(self, name: str, headers: Mapping[str, str]) -> Iterator[Trace]:
        """See :meth:`sunfleet_router.trace.Tracer.request`."""
        parent = _PROPAGATOR.extract(headers)
        span = self._tracer.start_span(name, context=parent, kind=api.SpanKind.SERVER)
        with _ended(span):
            yield _Trace(self._tracer, span, api.set_span_in_context(span, parent))

    def close(self) -> None:
        """See :meth:`sunfleet_router.trace.Tracer.close`."""
        self._provider.shutdown()


class _Trace:
    on = True

    def __init__(self, tracer: api.Tracer, span: api.Span, context: Context) -> None:
        self._tracer = tracer
        self._span = span
        self._context = context

    @contextmanager
    def phase(self, name: str, **attributes: str | int | float | bool) -> Iterator[Mapping[str, str]]:
        span = self._tracer.start_span(
            name,
            context=self._context,
            kind=api.SpanKind.CLIENT,
            attributes={_dotted(key): attributes[key] for key in attributes},
        )
        carried: dict[str, str] = {}
        _PROPAGATOR.inject(carried, api.set_span_in_context(span, self._context))
        with _ended(span):
            yield carried

    def note(self, **attributes: str | int | float | bool) -> None:
        for key, value in attributes.items():
            self._span.set_attribute(_dotted(key), value)


@contextmanager
def _ended(span: api.Span) -> Iterator[None]:
    """End the span whatever happens; a failure is named by its code, never by words that may quote a client."""
    try:
        yield
    except BaseException as error:
        code = error.code if isinstance(error, RouterError) else type(error).__name__
        span.set_attribute("error.type", code)
        span.set_status(api.StatusCode.ERROR)
        raise
    finally:
        span.end()


def _dotted(name: str) -> str:
    """``gen_ai__request__model`` is ``gen_ai.request.model``: attribute names have dots, Python's have none."""
    return name.replace("__", ".")
