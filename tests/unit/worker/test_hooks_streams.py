"""How an end reaches the client."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sunfleet_worker.errors import PREEMPTED, ended_by_engine
from sunfleet_worker.frontend.streams import EngineEndedError, Watch, WatchedEngine, begun, ending_honestly
from sunfleet_worker.frontend.telling import Telling

PLAIN = Telling(None, None)


def output(finish: str | None = None, stop: str | None = None) -> Any:
    return SimpleNamespace(outputs=[SimpleNamespace(finish_reason=finish, stop_reason=stop)])


def engine(*outputs: Any, on_ended: Callable[[str], None] = print) -> WatchedEngine:
    async def generate(*_: Any, **__: Any) -> AsyncGenerator[Any, None]:
        for item in outputs:
            yield item

    stock: Any = SimpleNamespace(generate=generate, errored=False)
    return WatchedEngine(stock, on_ended)


@pytest.mark.parametrize(
    ("finish", "stop", "code"),
    [("abort", PREEMPTED, PREEMPTED), ("abort", None, "sun_aborted"), ("error", None, "sun_engine_error")],
)
async def test_an_end_by_the_engine_is_an_error(finish: str, stop: str | None, code: str) -> None:
    counted: list[str] = []
    outputs = engine(output(), output(finish, stop), on_ended=counted.append).generate("prompt")
    await anext(outputs)
    with pytest.raises(EngineEndedError) as ended:
        await anext(outputs)
    assert (ended.value.reason.code, ended.value.reason.status) == (code, 503)
    assert counted == [code]


async def test_an_ordinary_end_and_everything_else_pass_through() -> None:
    watched = engine(output(), output("stop", "x"))
    assert len([item async for item in watched.generate("prompt")]) == 2
    assert watched.errored is False


async def stock_events(source: AsyncIterator[str]) -> AsyncGenerator[str, None]:
    """As the stock server makes them: it swallows an error, reports it and goes on to ``[DONE]``."""
    try:
        async for item in source:
            yield f"data: {item}\n\n"
    except EngineEndedError:
        yield 'data: {"error": {"message": "Internal server error", "code": 500, "type": "x"}}\n\n'
    yield "data: [DONE]\n\n"


async def source(*items: str, fails: bool) -> AsyncGenerator[str, None]:
    for item in items:
        yield item
    if fails:
        raise EngineEndedError(ended_by_engine(PREEMPTED))


def honest(*items: str, fails: bool) -> AsyncGenerator[str, None]:
    watch = Watch()
    return ending_honestly(stock_events(watch.over(source(*items, fails=fails))), watch, PLAIN)


async def test_a_stream_that_fails_midway_ends_with_the_error_and_no_done() -> None:
    events = [event async for event in await begun(honest("one", "two", fails=True))]
    assert events[:2] == ["data: one\n\n", "data: two\n\n"]
    assert json.loads(events[2].removeprefix("data: "))["error"]["code"] == PREEMPTED
    assert len(events) == 3


async def test_a_stream_that_fails_at_once_is_a_status() -> None:
    with pytest.raises(EngineEndedError) as ended:
        await begun(honest(fails=True))
    assert ended.value.reason.code == PREEMPTED


async def test_a_whole_stream_is_untouched() -> None:
    events = [event async for event in await begun(honest("one", fails=False))]
    assert events == ["data: one\n\n", "data: [DONE]\n\n"]


async def test_the_stock_servers_own_errors_end_a_stream_too() -> None:
    async def events() -> AsyncGenerator[str, None]:
        yield "data: one\n\n"
        yield 'data: {"error": {"message": "bad", "code": 400, "type": "BadRequestError", "param": null}}\n\n'
        yield "data: [DONE]\n\n"

    given = [event async for event in ending_honestly(events(), Watch(), PLAIN)]
    assert len(given) == 2
    assert json.loads(given[1].removeprefix("data: "))["error"]["message"] == "bad"


async def test_leaving_a_stream_closes_its_source() -> None:
    closed = []

    async def events() -> AsyncGenerator[str, None]:
        try:
            yield "data: one\n\n"
            yield "data: two\n\n"
        finally:
            closed.append(True)

    stream = await begun(ending_honestly(events(), Watch(), PLAIN))
    assert await anext(stream) == "data: one\n\n"
    await stream.aclose()
    assert closed == [True]
