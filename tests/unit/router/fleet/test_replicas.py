"""Several routers over one fleet, without a store in common: room, revisions and limits."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from sunfleet_fakes.harness import FakeEngine
from sunfleet_router.fleet.snapshot import Route, Snapshot
from sunfleet_router_harness import Engines, Router, RouterFactory, fleet_file
from sunfleet_router_streams import until

PATH = "/v1/completions"
TEXT: dict[str, Any] = {"model": "acme/maths", "prompt": "one two three", "max_tokens": 4}
LONG = {**TEXT, "prompt": "word " * 1500, "max_tokens": 16}  # its KV is there from the start, so other routers see it


def running(engine: FakeEngine) -> float:
    return engine.metric("vllm:num_requests_running")


def all_run(engines: Engines, count: int) -> bool:
    return running(engines.decode) + running(engines.decode_too) == count


async def held_open(router: Router, count: int) -> list[asyncio.Task[str]]:
    """Streams that have begun and do not end."""
    before = router.parts.load.decodes.total()
    streams = [asyncio.create_task(router.stream(PATH, LONG)) for _ in range(count)]
    await until(lambda: router.parts.load.decodes.total() == before + count)
    return streams


async def let_go(*streams: asyncio.Task[str]) -> None:
    for stream in streams:
        stream.cancel()
    await asyncio.gather(*streams, return_exceptions=True)


async def test_a_router_places_around_what_another_one_has_placed(
    start_router: RouterFactory, engines: Engines
) -> None:
    lopsided = fleet_file(engines)
    lopsided["decoders"][0]["endpoints"] = lopsided["decoders"][0]["endpoints"][:1]
    first, second = await start_router(fleet=lopsided), await start_router()
    engines.configure_decoders(hang="stream", hang_after_tokens=1)
    theirs = await held_open(first, 6)
    await until(lambda: running(engines.decode) == 6)
    await second.parts.scraper.look()
    mine = await held_open(second, 4)
    await until(lambda: running(engines.decode_too) == 4)
    assert running(engines.decode) == 6
    await let_go(*theirs, *mine)


async def test_two_routers_that_look_now_and_then_fill_the_pods_alike(
    start_router: RouterFactory, engines: Engines
) -> None:
    routers = [await start_router(), await start_router()]
    engines.configure_decoders(hang="stream", hang_after_tokens=1)
    streams: list[asyncio.Task[str]] = []
    for _ in range(3):
        for router in routers:
            streams += await held_open(router, 3)
        await until(partial(all_run, engines, len(streams)))
        for router in routers:
            await router.parts.scraper.look()
    assert all(router.parts.admission.others for router in routers)
    assert abs(running(engines.decode) - running(engines.decode_too)) <= 4
    await let_go(*streams)


def with_canary(router: Router, weight: int) -> None:
    """One prefill pod becomes the old revision, the other one the new."""
    snapshot = router.parts.fleet.snapshot
    task = snapshot.tasks["acme/maths"]
    old, new = task.prefill_pods()
    decoder = task.routes[0].decoder
    routes = (
        Route("old", 100 - weight, decoder, "5a17", (old,)),
        Route("new", weight, decoder, "0ea1", (new,)),
    )  # fmt: skip
    router.parts.fleet.replace(Snapshot({**snapshot.tasks, task.name: replace(task, routes=routes)}, snapshot.pools))


async def served_by(router: Router, request_id: str) -> str:
    async with router.http.post(router.url + PATH, json=TEXT, headers={"x-request-id": request_id}) as answer:
        assert answer.status == 200, await answer.text()
        return answer.headers["x-sunfleet-prefill-pod"]


async def test_a_canary_gets_its_share_and_a_request_id_the_same_revision_at_every_router(
    start_router: RouterFactory, engines: Engines
) -> None:
    first, second = await start_router(), await start_router()
    for router in (first, second):
        with_canary(router, 20)
    ids = [f"request-{number}" for number in range(60)]
    revisions = [await served_by(first, one) for one in ids]
    assert Counter(revisions).keys() == {"p0", "p1"}
    assert 3 <= revisions.count("p1") <= 24
    assert [await served_by(second, one) for one in ids[:20]] == revisions[:20]
    for router in (first, second):
        with_canary(router, 60)
    assert {one for one, revision in zip(ids, revisions, strict=True) if revision == "p1"} <= {
        one for one in ids if await served_by(first, one) == "p1"
    }, "a growing share takes nobody back"
    assert all(leg["body"]["cache_salt"] == "0ea1" for leg in engines.maths_too.requests())


async def test_a_try_on_another_pod_stays_with_the_revision(start_router: RouterFactory, engines: Engines) -> None:
    router = await start_router()
    with_canary(router, 50)
    ids = [f"request-{number}" for number in range(40)]
    pods = {one: await served_by(router, one) for one in ids}
    canary = next(one for one, pod in pods.items() if pod == "p1")
    seen = len(engines.maths.requests())
    engines.maths_too.configure(fail_status=503)
    async with router.http.post(router.url + PATH, json=TEXT, headers={"x-request-id": canary}) as answer:
        assert answer.status == 503
    assert len(engines.maths.requests()) == seen


@pytest.mark.parametrize("count", [1, 2])
async def test_a_limit_is_that_of_all_routers_together(start_router: RouterFactory, count: int) -> None:
    router = await start_router(settings={"replicas": count}, rateLimit={"requestsPerMinute": 4})
    router.parts.gate._clock = lambda: 0.0
    statuses = [(await router.post(PATH, TEXT))[0] for _ in range(5)]
    assert statuses.count(200) == 4 // count
    shown = router.parts.metrics.registry.get_sample_value("sunfleet_router_replicas")
    assert shown == count
