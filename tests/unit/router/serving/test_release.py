"""KV that no decoder will read is given back at once, without holding anyone up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sunfleet_router_harness import Engines, Router, RouterFactory
from sunfleet_router_streams import aimed_at, error_of, events_of, reading, until

TASK = "acme/maths"
TEXT: dict[str, Any] = {"model": TASK, "prompt": "one two three", "max_tokens": 16}


def released(engines: Engines) -> float:
    return sum(engine.metric("fake:kv_releases_total") for engine in (engines.maths, engines.maths_too))


def held(engines: Engines) -> float:
    return sum(engine.metric("fake:kv_blocks_used") for engine in (engines.maths, engines.maths_too))


def counted(router: Router, outcome: str) -> float:
    value: float = router.parts.metrics.releases.labels(outcome)._value.get()
    return value


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_was_decoded_releases_nothing(router: Router, engines: Engines, stream: bool) -> None:
    async with router.http.post(router.url + "/v1/completions", json={**TEXT, "stream": stream}) as answer:
        assert answer.status == 200
        await answer.read()
    await router.settled()
    assert (held(engines), sum(counted(router, outcome) for outcome in ("released", "failed"))) == (0, 0)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", [{"fail_status": 503}, {"fail_status": 500}, {"fail_status": 400}], ids=str)
async def test_kv_that_a_decoder_refused_is_released(
    router: Router, engines: Engines, fault: dict[str, Any], stream: bool
) -> None:
    engines.configure_decoders(**fault)
    async with router.http.post(router.url + "/v1/completions", json={**TEXT, "stream": stream}) as answer:
        assert answer.status >= 400
    await router.settled()
    prefills = len(engines.prefill_requests())
    assert (held(engines), released(engines), counted(router, "released")) == (0, prefills, prefills)


async def test_kv_of_a_client_that_left_before_the_decoder_read_it_is_released(
    router: Router, engines: Engines
) -> None:
    engines.configure_decoders(hang="accept")
    asked = asyncio.ensure_future(router.post("/v1/completions", TEXT))
    await until(engines.decode_requests)
    assert held(engines) == 1
    asked.cancel()
    await router.settled()
    assert (held(engines), released(engines)) == (0, 1)


async def test_kv_beside_an_answer_that_the_first_token_ended_is_released(
    router: Router, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sunfleet_router.bodies import handover

    monkeypatch.setattr(handover.PrefillReply, "finished", lambda *_: True)
    status, _ = await router.post("/v1/completions", TEXT)
    await router.settled()
    assert (status, held(engines), released(engines)) == (200, 0, 1)


async def test_kv_of_a_resume_that_came_to_nothing_is_released(start_router: RouterFactory, engines: Engines) -> None:
    router = await start_router(settings={"resume_attempts": 2})
    engines.decode.configure(fail_after_tokens=3, fail_code="sun_preempted", tokens_per_second=20)
    engines.decode_too.configure(fail_status=503)
    task = asyncio.ensure_future(events_of(router, "completion", aimed_at(engines, engines.decode)))
    await until(engines.decode.requests)
    engines.decode.configure(fail_status=503)
    assert error_of(await task)["code"]
    await router.settled()
    assert (held(engines), released(engines)) == (0, 2)


async def test_an_incomplete_hand_over_releases_what_it_names(router: Router, engines: Engines) -> None:
    engines.configure_prefills(drop_transfer_fields=["remote_port"])
    status, _ = await router.post("/v1/completions", TEXT)
    await router.settled()
    assert (status, held(engines), released(engines)) == (502, 0, 2)


@pytest.mark.parametrize("fault", ["hang", "dead"])
async def test_a_prefill_pod_that_cannot_release_holds_nobody_up(
    router: Router, engines: Engines, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sunfleet_router.engines.release._SECONDS", 0.5)
    engines.configure_prefills(hang="release")
    engines.decode.configure(hang="accept")
    request_id = aimed_at(engines, engines.decode)
    events = reading(router, "completion", request_id)
    waiting = asyncio.ensure_future(anext(events))
    await until(engines.decode.requests)
    if fault == "dead":
        engines.maths.kill()
        engines.maths_too.kill()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await until(lambda: router.parts.desk.in_flight == 0, 0.4)
    await until(lambda: counted(router, "failed") == 1)


async def test_releases_above_the_bound_are_left_to_the_lease(
    router: Router, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sunfleet_router.engines.release._MOST", 0)
    monkeypatch.setattr("sunfleet_router.engines.release._LONGEST", 0)
    engines.configure_decoders(fail_status=500)
    await router.post("/v1/completions", TEXT)
    assert counted(router, "dropped") == 1
    assert held(engines) == 1


async def test_five_hundred_clients_that_leave_after_their_prefill_leave_no_kv_behind(
    start_router: RouterFactory, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sunfleet_router.engines.release._MOST", 16)  # far fewer at once than leave
    router = await start_router(maxInFlight=1000)
    engines.configure_prefills(kv_lease_seconds=600)
    engines.configure_decoders(hang="accept")
    asked = [asyncio.ensure_future(router.post("/v1/completions", TEXT)) for _ in range(500)]
    await until(lambda: router.parts.load.decodes.total() == 500, 60)
    for one in asked:
        one.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    await router.settled(30)
    assert (held(engines), counted(router, "released"), counted(router, "dropped")) == (0, 500, 0)


async def test_a_router_that_leaves_finishes_its_releases(router: Router, engines: Engines) -> None:
    engines.configure_decoders(fail_status=500)
    await router.post("/v1/completions", TEXT)
    router.stop.set()
    await router.task
    assert (held(engines), released(engines)) == (0, 1)
