"""Streams through a router in tests: aimed at one decode pod, and read as whole events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from sunfleet_fakes.harness import FakeEngine, expected_text, tokenize
from sunfleet_router.policies import tie_break
from sunfleet_router_harness import Engines, Router

PROMPT = "what is six times seven"
PATHS = {"chat": "/v1/chat/completions", "completion": "/v1/completions"}
QUESTIONS: dict[str, dict[str, Any]] = {
    "chat": {"model": "acme/maths", "messages": [{"role": "user", "content": PROMPT}]},
    "completion": {"model": "acme/maths", "prompt": PROMPT},
}


def aimed_at(engines: Engines, decoder: FakeEngine) -> str:
    """A request id whose ties go to this decode pod, while the pool is idle."""
    uids = {engine: f"decode:127.0.0.1:{engine.port}" for engine in (engines.decode, engines.decode_too)}
    for number in range(1000):
        name = f"aimed-{number}"
        if min(uids, key=lambda engine: tie_break(uids[engine], name)) is decoder:
            return name
    raise AssertionError("no id is tied to this pod")


async def events_of(router: Router, kind: str, request_id: str, **fields: Any) -> list[Any]:
    """Every event of one streamed answer, in order; the end mark is the string ``[DONE]``."""
    return [event async for event in reading(router, kind, request_id, **fields)]


async def named_events(router: Router, path: str, body: dict[str, Any], request_id: str = "x") -> list[dict[str, Any]]:
    """Every event of a streamed answer of an API that names its events; the name must be its data's type."""
    headers = {"x-request-id": request_id}
    async with router.http.post(router.url + path, json={**body, "stream": True}, headers=headers) as answer:
        assert (answer.status, answer.content_type) == (200, "text/event-stream"), await answer.text()
        text = (await answer.read()).decode()
    events = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


async def reading(router: Router, kind: str, request_id: str, **fields: Any) -> AsyncIterator[Any]:
    """The events as they come. Nothing but data may be in the stream."""
    body = {**QUESTIONS[kind], **fields, "stream": True}
    async with router.http.post(router.url + PATHS[kind], json=body, headers={"x-request-id": request_id}) as answer:
        assert answer.status == 200, await answer.text()
        async for line in answer.content:
            if line.strip():
                assert line.startswith(b"data: "), line
                data = line.removeprefix(b"data: ").strip()
                yield "[DONE]" if data == b"[DONE]" else json.loads(data)


def without_times(events: list[Any]) -> list[Any]:
    """The events without ``created``, which must be the same in all of them."""
    times = {event.get("created") for event in events if isinstance(event, dict)}
    assert len(times) == 1, times
    return [
        {key: value for key, value in event.items() if key != "created"} if isinstance(event, dict) else event
        for event in events
    ]


def text_of(events: list[Any]) -> str:
    choices = [choice for event in events if isinstance(event, dict) for choice in event.get("choices", ())]
    return "".join(choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices)


def right_text(answer_tokens: int = 16, max_tokens: int = 16) -> str:
    """Of the completion."""
    return expected_text("maths", "base", tokenize(PROMPT), answer_tokens=answer_tokens, max_tokens=max_tokens)


def error_of(events: list[Any]) -> dict[str, Any]:
    """The error that ends a stream: one event, the last, and no end mark."""
    *good, last = events
    assert "[DONE]" not in events
    assert not any("error" in event for event in good)
    error: dict[str, Any] = last["error"]
    assert error["message"]
    return error


def count(router: Router, metric: str, *labels: str) -> float:
    """Value of one of the router's counters."""
    value: float = getattr(router.parts.metrics, metric).labels(*labels)._value.get()
    return value


async def until(condition: Callable[[], Any], seconds: float = 5.0) -> None:
    for _ in range(int(seconds / 0.02)):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come about in time")


def error_event(stream: str) -> dict[str, Any]:
    """The error that ends a stream: one event, and no [DONE]."""
    assert "[DONE]" not in stream
    last = stream.removesuffix("\n\n").rsplit("\n\n", 1)[-1]
    error: dict[str, Any] = json.loads(last.removeprefix("data: "))["error"]
    assert error["message"]
    return error


def good_events(stream: str) -> list[Any]:
    """The events of a stream but for the end mark and an error."""
    lines = [line.removeprefix("data: ") for line in stream.split("\n\n") if line]
    return [event for event in map(json.loads, filter(lambda line: line != "[DONE]", lines)) if "error" not in event]
