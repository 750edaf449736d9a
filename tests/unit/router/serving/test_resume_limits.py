"""Where a resume ends: bounds, time, pods that are gone, another prompt, a client or a router that leaves."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from sunfleet_router.fleet.snapshot import Snapshot
from sunfleet_router_harness import Engines, Router, RouterFactory
from sunfleet_router_streams import aimed_at, count, error_of, events_of, reading, right_text, text_of, until

TASK = "acme/maths"
SLOW: dict[str, Any] = {"tokens_per_second": 6}  # leaves a test the time to change something meanwhile


def break_after(engines: Engines, tokens: int, **more: Any) -> str:
    """The next answer breaks off on its first decode pod; the id of the request that meets it."""
    engines.decode.configure(fail_after_tokens=tokens, fail_code="sun_preempted", **more)
    return aimed_at(engines, engines.decode)


async def first_of(router: Router, request_id: str, number: int = 2) -> tuple[list[Any], asyncio.Task[list[Any]]]:
    """The first events of a stream, and the task that reads the rest into the same list."""
    events: list[Any] = []

    async def read() -> list[Any]:
        async for event in reading(router, "completion", request_id):
            events.append(event)  # noqa: PERF401 the test looks at the list meanwhile
        return events

    task = asyncio.ensure_future(read())
    await until(lambda: len(events) >= number)
    return events, task


async def test_tries_in_a_row_without_a_token_are_bounded(start_router: RouterFactory, engines: Engines) -> None:
    router = await start_router(settings={"resume_attempts": 3})
    request_id = break_after(engines, 5)
    engines.decode.configure(requests=1)
    events_task = asyncio.ensure_future(events_of(router, "completion", request_id))
    await until(engines.decode.requests)
    engines.configure_decoders(fail_status=503, fail_code="sun_preempted", requests=None)
    events = await events_task
    assert error_of(events)["code"] == "sun_preempted"
    assert (len(events), right_text().startswith(text_of(events))) == (6, True)
    assert [count(router, "resumes", TASK, reason) for reason in ("preempted", "failed")] == [1, 2]
    assert count(router, "resumed_streams", TASK, "failed") == 1


async def test_the_breaks_of_one_stream_are_bounded_even_if_each_resume_makes_progress(
    start_router: RouterFactory, engines: Engines
) -> None:
    router = await start_router(settings={"resume_limit": 3})
    engines.configure_decoders(die_after_tokens=1, die="truncate")
    events = await events_of(router, "completion", "one")
    assert error_of(events)["code"] == "stream_interrupted"
    assert len(events) == 1 + 3 + 1
    assert right_text().startswith(text_of(events))


async def test_resumes_can_be_switched_off(start_router: RouterFactory, engines: Engines) -> None:
    router = await start_router(settings={"resume_limit": 0})
    events = await events_of(router, "completion", break_after(engines, 4))
    assert error_of(events)["code"] == "sun_preempted"
    assert (len(events), len(engines.prefill_requests())) == (5, 1)


async def test_a_resume_ends_with_the_requests_own_time(start_router: RouterFactory, engines: Engines) -> None:
    router = await start_router(timeouts={"requestSeconds": 2})
    engines.configure_prefills(hang="prefill", resumed_only=True)
    events = await events_of(router, "completion", break_after(engines, 6))
    assert error_of(events)["code"] == "request_timeout"
    await until(lambda: all(leg["outcome"] != "running" for leg in engines.prefill_requests()))


async def test_a_client_that_leaves_during_a_resume_ends_it_at_once(router: Router, engines: Engines) -> None:
    engines.configure_prefills(hang="prefill", resumed_only=True)  # before: a busy machine may be late with it
    _, task = await first_of(router, break_after(engines, 6))
    await until(lambda: len(engines.prefill_requests()) == 2)
    task.cancel()
    await router.settled(1.0)
    await until(lambda: engines.prefill_requests()[-1]["outcome"] != "running")
    assert {leg["outcome"] for leg in engines.prefill_requests()} == {"completed", "disconnected"}
    assert count(router, "resumed_streams", TASK, "abandoned") == 1
    assert count(router, "requests", TASK, "client_gone") == 1


async def test_a_prefill_pod_that_is_gone_is_replaced_by_another_of_the_task(router: Router, engines: Engines) -> None:
    events, task = await first_of(router, break_after(engines, 6, **SLOW))
    used = engines.maths if engines.maths.requests() else engines.maths_too
    used.kill()
    await task
    assert (text_of(events), events[-1]) == (right_text(), "[DONE]")


async def test_without_any_prefill_pod_the_stream_ends_with_an_error(
    start_router: RouterFactory, engines: Engines
) -> None:
    router = await start_router(settings={"resume_attempts": 2})
    events, task = await first_of(router, break_after(engines, 6, **SLOW))
    engines.maths.kill()
    engines.maths_too.kill()
    await task
    assert error_of(events)["code"] == "engine_unreachable"
    assert len(events) == 7


@pytest.mark.parametrize("kind", ["chat", "completion"])
async def test_another_prompt_ends_the_stream_with_an_error_and_is_never_decoded(
    router: Router, engines: Engines, kind: str
) -> None:
    engines.configure_prefills(tell_other_prompt=True, resumed_only=True)
    events = await events_of(router, kind, break_after(engines, 6))
    assert error_of(events)["code"] == "resume_mismatch"
    assert len(engines.decode_requests()) == 1
    assert len(engines.prefill_requests()) == 2


def without_decoders(router: Router) -> Snapshot:
    """Take every decode pod away; returns the fleet as it was."""
    was = router.parts.fleet.snapshot
    router.parts.fleet.replace(replace(was, pools=MappingProxyType(dict.fromkeys(was.pools, ()))))
    return was


async def test_with_no_decode_pod_left_a_stream_waits_for_one(router: Router, engines: Engines) -> None:
    events, task = await first_of(router, break_after(engines, 6, **SLOW))
    was = without_decoders(router)
    await until(lambda: router.parts.admission.waiting.requests.total() == 1)
    await asyncio.sleep(0.3)
    assert not task.done()
    status, _ = await router.post("/v1/completions", {"model": TASK, "prompt": "new", "max_tokens": 2})
    assert status == 503, "who has got nothing yet can go elsewhere"
    router.parts.fleet.replace(was)
    await task
    assert (text_of(events), events[-1]) == (right_text(), "[DONE]")


async def test_with_no_decode_pod_for_too_long_the_stream_ends_with_an_error(
    start_router: RouterFactory, engines: Engines
) -> None:
    router = await start_router(queue={"ttlSeconds": 1})
    events, task = await first_of(router, break_after(engines, 6, **SLOW))
    without_decoders(router)
    await task
    assert error_of(events)["code"] == "queue_timeout"


async def test_a_drain_waits_for_a_stream_that_is_being_resumed(router: Router, engines: Engines) -> None:
    engines.configure_prefills(prefill_seconds=0.5)
    events, task = await first_of(router, break_after(engines, 6))
    await until(lambda: len(engines.prefill_requests()) == 2)
    router.stop.set()
    await task
    assert (text_of(events), events[-1]) == (right_text(), "[DONE]")
    await asyncio.wait_for(router.task, 5)


async def test_a_drain_that_is_over_ends_a_resume_with_an_error(start_router: RouterFactory, engines: Engines) -> None:
    router = await start_router(settings={"drain_timeout": 0.3})
    engines.configure_prefills(hang="prefill", resumed_only=True)
    events, task = await first_of(router, break_after(engines, 6))
    await until(lambda: len(engines.prefill_requests()) == 2)
    router.stop.set()
    await task
    assert error_of(events)["code"] == "stream_interrupted"
    await asyncio.wait_for(router.task, 5)


async def test_a_stream_that_is_resumed_stands_before_new_requests(
    start_router: RouterFactory, engines: Engines
) -> None:
    router = await start_router()
    order: list[str] = []
    events, task = await first_of(router, break_after(engines, 6, **SLOW))
    engines.configure_decoders(tokens_per_second=200, fail_after_tokens=None)
    was = without_decoders(router)
    await until(lambda: router.parts.admission.waiting.requests.total() == 1)
    large = {"model": TASK, "prompt": "new", "max_tokens": 2000, "ignore_eos": True}
    router.parts.fleet.replace(was)
    crowd = [asyncio.ensure_future(router.post("/v1/completions", large)) for _ in range(20)]
    task.add_done_callback(lambda _: order.append("resumed"))
    for one in crowd:
        one.add_done_callback(lambda _: order.append("new"))
    await task
    assert order == ["resumed"]
    assert text_of(events) == right_text()
    for one in crowd:
        one.cancel()
    await asyncio.gather(*crowd, return_exceptions=True)


async def test_headers_name_the_pods_that_began_the_stream(router: Router, engines: Engines) -> None:
    request_id = break_after(engines, 3)
    body = {"model": TASK, "prompt": "one", "stream": True}
    headers = {"x-request-id": request_id}
    async with router.http.post(router.url + "/v1/completions", json=body, headers=headers) as answer:
        assert answer.headers["x-sunfleet-decode-pod"] == "d0"
        assert (await answer.text()).endswith("data: [DONE]\n\n")
    assert len(engines.decode_requests()) == 2
