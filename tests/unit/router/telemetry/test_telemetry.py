"""Traces, logs and accounts: one span for each phase, ids and no words of clients, and whose GPU time it was."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import generate_latest

from sunfleet_router import trace
from sunfleet_router.server import _tracer
from sunfleet_router.settings import ConfigError, RouterSettings
from sunfleet_router.telemetry import logs
from sunfleet_router.telemetry.tracing import Tracing
from sunfleet_router_harness import Engines, Router, RouterFactory

PATH = "/v1/completions"
TEXT: dict[str, Any] = {"model": "acme/maths", "prompt": "secret words here", "max_tokens": 4}
CLIENTS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
async def traced(start_router: RouterFactory, exporter: InMemorySpanExporter) -> Router:
    router = await start_router()
    router.parts.flow._tracer = Tracing(SimpleSpanProcessor(exporter))
    return router


def spans(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {one.name: one for one in exporter.get_finished_spans()}


def trace_of(one: ReadableSpan) -> str:
    assert one.context is not None
    return f"{one.context.trace_id:032x}"


def legs_parents(requests: Sequence[dict[str, Any]]) -> list[str]:
    return [one["headers"]["traceparent"].split("-")[2] for one in requests]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_is_one_trace_with_a_span_for_each_phase_which_the_engines_join(
    traced: Router, engines: Engines, exporter: InMemorySpanExporter, stream: bool
) -> None:
    async with traced.http.post(
        traced.url + PATH, json={**TEXT, "stream": stream}, headers={"traceparent": CLIENTS}
    ) as answer:
        assert answer.status == 200
        await answer.read()
    await traced.settled()
    found = spans(exporter)
    phases = {"route", "queue", "prefill", "decode"} | ({"kv_load", "first_token"} if stream else set())
    assert found.keys() == phases | {"completion"}
    assert {trace_of(one) for one in found.values()} == {CLIENTS.split("-")[1]}
    root = found["completion"]
    assert root.parent is not None
    assert root.context is not None
    assert f"{root.parent.span_id:016x}" == CLIENTS.split("-")[2]
    assert {one.parent.span_id for name, one in found.items() if name != "completion" and one.parent} == {
        root.context.span_id
    }
    attributes = dict(root.attributes or {})
    assert attributes["gen_ai.request.model"] == "acme/maths"
    assert (attributes["gen_ai.usage.input_tokens"], attributes["gen_ai.usage.output_tokens"]) == (3, 4)
    for requests, name in ((engines.prefill_requests(), "prefill"), (engines.decode_requests(), "decode")):
        context = found[name].context
        assert context is not None
        assert legs_parents(requests) == [f"{context.span_id:016x}"]


async def test_a_failure_is_named_by_its_code_and_quotes_nobody(
    traced: Router, engines: Engines, exporter: InMemorySpanExporter
) -> None:
    engines.configure_prefills(fail_status=400, fail_message="secret words here are not allowed")
    assert (await traced.post(PATH, TEXT))[0] == 400
    found = spans(exporter)
    assert dict(found["prefill"].attributes or {})["error.type"]
    assert not found["prefill"].status.is_ok
    text = "".join(one.to_json() for one in exporter.get_finished_spans())
    assert "secret" not in text


async def test_without_traces_a_clients_own_goes_on_as_it_came(router: Router, engines: Engines) -> None:
    assert router.parts.tracer is trace.OFF
    assert (await router.post(PATH, TEXT, traceparent=CLIENTS))[0] == 200
    both = engines.prefill_requests() + engines.decode_requests()
    assert [one["headers"]["traceparent"] for one in both] == [CLIENTS, CLIENTS]


def test_traces_without_their_packages_are_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "sunfleet_router.telemetry.tracing")
    with pytest.raises(ConfigError, match=r"sunfleet\[router,tracing\]"):
        _tracer(RouterSettings(tracing=True))


# Logs


def record(message: str, *arguments: object, error: BaseException | None = None) -> logging.LogRecord:
    info = (type(error), error, None) if error else None
    return logging.LogRecord("sunfleet_router.x", logging.WARNING, "f", 1, message, arguments, info)


def test_a_log_line_is_one_json_object_with_its_requests_id() -> None:
    token = logs.REQUEST.set("r-1")
    try:
        line = json.loads(logs.JsonLines().format(record("two\nlines and %s", '"quotes"', error=ValueError("x"))))
    finally:
        logs.REQUEST.reset(token)
    assert line["time"].endswith("Z")
    assert (line["level"], line["logger"], line["request_id"]) == ("WARNING", "sunfleet_router.x", "r-1")
    assert line["message"] == 'two\nlines and "quotes"'
    assert "ValueError: x" in line["exception"]
    assert "request_id" not in json.loads(logs.JsonLines().format(record("none")))


async def test_what_is_logged_of_a_request_has_its_id_and_no_word_of_its_prompt(
    start_router: RouterFactory, engines: Engines, caplog: pytest.LogCaptureFixture
) -> None:
    router = await start_router(settings={"attempts": 1})
    engines.configure_prefills(fail_status=503, fail_message="cannot do: secret words here")
    ids: list[str] = []

    def note(record: logging.LogRecord) -> bool:
        if "mine-1" in record.getMessage():
            ids.append(logs.REQUEST.get())
        return True

    caplog.handler.addFilter(note)
    with caplog.at_level("DEBUG"):
        await router.post(PATH, TEXT, **{"x-request-id": "mine-1"})
    caplog.handler.removeFilter(note)
    assert ids
    assert set(ids) == {"mine-1"}
    assert "secret" not in caplog.text


# Accounts


async def test_what_the_scaler_learns_lengths_from_counts_every_prompt_once(router: Router) -> None:
    """The squares' sum is that of the squares, not the square of the sum."""
    for prompt in ("one", "one two three four"):
        async with router.http.post(router.url + PATH, json={**TEXT, "prompt": prompt}) as answer:
            assert answer.status == 200
    metrics = router.parts.metrics
    assert metrics.prompt_tokens.labels("acme/maths")._value.get() == 1 + 4
    assert metrics.prompt_tokens_squared.labels("acme/maths")._value.get() == 1 + 16


async def test_gpu_time_is_divided_among_tasks_by_what_they_held(router: Router, engines: Engines) -> None:
    engines.configure_prefills(prefill_seconds=0.1)
    engines.configure_decoders(tokens_per_second=40)
    await asyncio.gather(
        router.post(PATH, {**TEXT, "max_tokens": 4}),
        router.stream(PATH, {**TEXT, "model": "code", "max_tokens": 4}),
    )
    await router.settled()
    seconds = {
        (task, leg): router.parts.metrics.gpu_seconds.labels(task, leg)._value.get()
        for task in ("acme/maths", "code")
        for leg in ("prefill", "decode")
    }
    assert seconds["acme/maths", "prefill"] >= 0.1
    assert all(value > 0 for value in seconds.values())
    reserved = 16 / 16_384  # a block of a decode pod's KV, for a tenth of a second at least
    assert 0.05 * reserved < seconds["acme/maths", "decode"] < 60 * reserved
    assert (
        'gpu_seconds_total{leg="decode",task="asleep"} 0.0' in generate_latest(router.parts.metrics.registry).decode()
    )


# Revisions


def of_revision(router: Router) -> dict[str, float]:
    """The answers of the only revision of a task by outcome, and what its good ones took."""
    (route,) = router.parts.fleet.snapshot.tasks["acme/maths"].routes
    metrics, of = router.parts.metrics, ("acme/maths", route.revision)
    return {
        "ok": metrics.revision_requests.labels(*of, "ok")._value.get(),
        "failed": metrics.revision_requests.labels(*of, "failed")._value.get(),
        "tokens": metrics.revision_tokens.labels(*of)._value.get(),
        "seconds": metrics.revision_seconds.labels(*of)._value.get(),
    }


@pytest.mark.parametrize("stream", [False, True])
async def test_good_answers_of_a_revision_are_counted_with_their_tokens_and_time(router: Router, stream: bool) -> None:
    async with router.http.post(router.url + PATH, json={**TEXT, "stream": stream}) as answer:
        await answer.read()
    await router.settled()
    found = of_revision(router)
    assert (found["ok"], found["failed"], found["tokens"]) == (1, 0, 4)
    assert 0 < found["seconds"] < 60


async def test_a_request_that_engines_failed_is_the_revisions_and_one_that_the_client_spoilt_is_not(
    router: Router, engines: Engines
) -> None:
    engines.configure_decoders(fail_status=500)
    await router.post(PATH, TEXT)
    await router.post(PATH, {**TEXT, "max_tokens": -1})
    await router.settled()
    found = of_revision(router)
    assert (found["ok"], found["failed"], found["tokens"]) == (0, 1, 0)


async def test_requests_that_an_open_circuit_refuses_are_their_revisions(router: Router, engines: Engines) -> None:
    """Else a canary whose engines fail every request is given up the later the sooner its circuit opens."""
    engines.configure_decoders(fail_status=500)
    answers = [await router.post(PATH, TEXT) for _ in range(12)]
    await router.settled()
    assert "decode_circuit_open" in str(answers[-1])
    assert of_revision(router)["failed"] == len(answers)
