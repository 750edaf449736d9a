"""Each way in which the router turns a request away: status, reason in body and header, Retry-After, metric."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from sunfleet_router_harness import Engines, Router, RouterFactory
from sunfleet_router_streams import until

PATH = "/v1/completions"
TEXT: dict[str, Any] = {"model": "acme/maths", "prompt": "one two three", "max_tokens": 4}


def _fill(router: Router) -> None:
    """No decode pod has room for anything more."""
    for pod in router.parts.fleet.snapshot.pool("local/base"):
        router.parts.admission.reserved[pod.uid] += pod.capacity


def _empty(router: Router) -> None:
    router.parts.admission.reserved.clear()


def _nothing(_: Router) -> None:
    pass


def _forget(router: Router) -> None:
    router.parts.fleet.synced = False
    router.parts.fleet.snapshot = type(router.parts.fleet.snapshot)()


@dataclass(frozen=True)
class Drop:
    """``first`` requests are served before the one that is turned away."""

    reason: str
    status: int
    retry_after: str
    model: str = "acme/maths"
    traffic: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    before: Callable[[Router], None] = _nothing
    first: int = 0


DROPS = [
    Drop("requests_per_minute", 429, "60", traffic={"rateLimit": {"requestsPerMinute": 1}}, first=1),
    Drop("tokens_per_minute", 429, "47", traffic={"rateLimit": {"tokensPerMinute": 9}}, first=1),
    Drop("queue_full", 429, "1", traffic={"queue": {"maxRequests": 0}}, before=_fill),
    Drop("queue_full", 429, "1", traffic={"queue": {"maxTokens": 1}}, before=_fill),
    Drop("queue_full", 429, "1", traffic={"queue": {"maxBytes": 9}}, before=_fill),
    Drop("overloaded", 503, "1", settings={"max_queued_requests": 0}, before=_fill),
    Drop("overloaded", 503, "1", settings={"max_queued_tokens": 0}, before=_fill),
    Drop("overloaded", 503, "1", settings={"max_queued_bytes": 0}, before=_fill),
    Drop("no_prefill_endpoint", 503, "5", model="asleep"),
    Drop("no_decode_endpoint", 503, "5", model="undecoded"),
    Drop("not_synced", 503, "5", before=_forget),
]


@pytest.mark.parametrize("drop", DROPS, ids=lambda drop: f"{drop.reason}-{drop.traffic or drop.settings}")
async def test_a_request_that_is_turned_away_is_told_why_and_when_to_come_again(
    start_router: RouterFactory, engines: Engines, drop: Drop
) -> None:
    router = await start_router(settings=drop.settings, **drop.traffic)
    router.parts.gate._clock = lambda: 0.0  # a slow machine makes no rate
    for _ in range(drop.first):
        assert (await router.post(PATH, TEXT))[0] == 200
    drop.before(router)
    served = len(engines.prefill_requests())
    async with router.http.post(router.url + PATH, json={**TEXT, "model": drop.model}) as answer:
        code = (await answer.json())["error"]["code"]
        assert (answer.status, code) == (drop.status, drop.reason)
        assert answer.headers["x-sunfleet-request-dropped-reason"] == drop.reason
        assert answer.headers["retry-after"] == drop.retry_after
    label = "" if drop.reason == "not_synced" else drop.model
    assert router.parts.metrics.requests.labels(label, drop.reason)._value.get() == 1
    assert len(engines.prefill_requests()) == served
    _empty(router)


async def test_an_error_of_an_engine_is_no_drop(router: Router, engines: Engines) -> None:
    engines.configure_prefills(fail_status=500)
    async with router.http.post(router.url + PATH, json=TEXT) as answer:
        assert answer.status == 502
        assert "x-sunfleet-request-dropped-reason" not in answer.headers


async def test_those_who_wait_are_served_by_priority_which_no_engine_sees(
    start_router: RouterFactory, engines: Engines
) -> None:
    router = await start_router()
    _fill(router)
    asked = {f"priority-{number}": number for number in (9, 0, 3)}
    requests = []
    for name, number in asked.items():
        body = {**TEXT, "priority": number}
        requests.append(asyncio.ensure_future(router.post(PATH, body, **{"x-request-id": name})))
        await until(lambda: router.parts.admission.waiting.requests["acme/maths"] == len(requests))
    only = router.parts.fleet.snapshot.pool("local/base")[0]
    router.parts.admission.reserved[only.uid] -= 16  # a block: room for one
    router.parts.admission._serve("local/base")
    assert [status for status, _ in await asyncio.gather(*requests)] == [200] * 3
    came = engines.decode_requests()
    assert [one["headers"]["x-request-id"] for one in came] == sorted(asked, key=asked.__getitem__)
    assert not any("priority" in one["body"] for one in engines.prefill_requests() + came)
    _empty(router)
