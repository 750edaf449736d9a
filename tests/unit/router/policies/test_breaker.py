"""Where every pod keeps failing requests fail at once, and one at a time finds out whether that is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sunfleet_api.wire import EngineInfo
from sunfleet_router.errors import PhaseTimeoutError
from sunfleet_router.fleet.snapshot import Endpoint
from sunfleet_router.policies import Choice, Reject, Wait, decode, prefill
from sunfleet_router.policies.outlier import FAILURES, FIRST, PROBE, TRIAL, Outliers
from sunfleet_router_harness import Engines, Router, RouterFactory, fleet_file
from sunfleet_router_streams import until

PATH = "/v1/completions"
TEXT: dict[str, Any] = {"model": "acme/maths", "prompt": "one two three", "max_tokens": 4}


def pod(uid: str) -> Endpoint:
    info = EngineInfo(role="decode", kv_capacity_tokens=1000, block_size=16, max_model_len=1000)
    return Endpoint(uid, uid, "127.0.0.1", 8000, "decode", "f", info)


A, B = pod("a"), pod("b")


def ejected(outliers: Outliers, uid: str, now: float) -> None:
    for _ in range(FAILURES):
        outliers.failed(uid, now)


class Clock:
    def __init__(self, router: Router) -> None:
        self.now = 0.0
        router.parts.load._clock = lambda: self.now


async def failing(router: Router, body: dict[str, Any] = TEXT, times: int = FAILURES) -> None:
    for _ in range(times):
        assert (await router.post(PATH, body))[0] >= 500


def gauge(router: Router, task: str, leg: str) -> float | None:
    return router.parts.metrics.registry.get_sample_value(
        "sunfleet_router_circuit_open", {"task": task, "leg": leg}
    )  # fmt: skip


# Policies


def test_an_ejected_pod_gets_nothing_while_there_is_another_even_if_that_one_is_full() -> None:
    facts = decode.DecodeFacts("r", 100, ("f",))
    assert decode.choose(facts, [A, B], {"b": 500}, ejected={"a": 0}) == Choice(B)
    assert decode.choose(facts, [A, B], {"b": 1000}, ejected={"a": 0}) == Wait()


def test_where_all_are_ejected_the_first_that_may_be_tried_is_and_before_that_nobody() -> None:
    facts = decode.DecodeFacts("r", 100, ("f",))
    assert decode.choose(facts, [A, B], {}, ejected={"a": 3, "b": 7}) == Reject("ejected", 3)
    assert decode.choose(facts, [A, B], {}, ejected={"a": 3, "b": 0}) == Choice(B)
    assert decode.choose_again(facts, [A, B], {}, ejected={"a": 3, "b": 7}) == Reject("ejected", 3)
    prompt = prefill.PrefillFacts("r", "f")
    for choose in (prefill.choose, prefill.choose_again):
        assert choose(prompt, [A, B], {}, ejected={"a": 3, "b": 7}) == Reject("ejected", 3)
        assert choose(prompt, [A, B], {}, ejected={"a": 3, "b": 0}) == Choice(B)


def test_a_pod_whose_time_is_long_is_still_tried_every_few_seconds_where_there_is_no_other() -> None:
    outliers, now = Outliers(), 0.0
    ejected(outliers, "a", now)
    for _ in range(6):
        now += FIRST * 64
        outliers.failed("a", now)
    assert outliers.ejected(now) == {"a": PROBE}
    assert outliers.ejected(now + PROBE) == {"a": 0}
    outliers.chosen("a", now + PROBE)
    assert outliers.ejected(now + PROBE) == {"a": PROBE}, "one at a time"
    assert outliers.ejected(now + PROBE + TRIAL) == {"a": 0}, "one that nobody heard of again makes room"


def test_failures_of_legs_that_had_begun_before_make_no_ejection_longer() -> None:
    outliers = Outliers()
    ejected(outliers, "a", 0)
    for _ in range(20):
        outliers.failed("a", 1)
    assert not outliers.ejected(FIRST)


def test_a_pod_that_has_begun_to_answer_gets_more_and_its_next_failure_ejects_it_again() -> None:
    outliers = Outliers()
    ejected(outliers, "a", 0)
    outliers.chosen("a", FIRST)
    outliers.began("a", FIRST + 1)
    assert not outliers.ejected(FIRST + 1)
    outliers.failed("a", FIRST + 2)
    assert outliers.ejected(FIRST + 2)


# The router


LEGS: list[tuple[str, dict[str, Any]]] = [
    ("prefill", {"fail_status": 500}), ("decode", {"fail_status": 500}), ("prefill", {"garbage_json": True}),
]  # fmt: skip


def alone(engines: Engines) -> dict[str, Any]:
    """One prefill pod, one decode pod: every failure is theirs."""
    fleet = fleet_file(engines)
    fleet["decoders"][0]["endpoints"] = fleet["decoders"][0]["endpoints"][:1]
    fleet["tasks"][0]["prefill"] = fleet["tasks"][0]["prefill"][:1]
    return fleet


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("leg", "fault"), LEGS, ids=str)
async def test_an_open_circuit_is_503_at_once_and_no_engine_is_asked(
    start_router: RouterFactory, engines: Engines, leg: str, fault: dict[str, Any], stream: bool
) -> None:
    router = await start_router(fleet=alone(engines))
    clock = Clock(router)
    assert gauge(router, "acme/maths", leg) == 0
    (engines.maths if leg == "prefill" else engines.decode).configure(**fault)
    await failing(router)
    clock.now = 2.5
    asked = len(engines.prefill_requests())
    async with router.http.post(router.url + PATH, json={**TEXT, "stream": stream}) as answer:
        error = (await answer.json())["error"]
        assert (answer.status, error["code"]) == (503, f"{leg}_circuit_open")
        assert answer.headers["retry-after"] == "8"
        assert answer.headers["x-sunfleet-request-dropped-reason"] == f"{leg}_circuit_open"
    assert len(engines.prefill_requests()) == asked, "no prompt is computed for a decode leg that cannot be"
    assert gauge(router, "acme/maths", leg) == 1
    assert gauge(router, "asleep", "prefill") == 0, "no pod is no failing pod"
    assert router.parts.metrics.requests.labels("acme/maths", f"{leg}_circuit_open")._value.get() == 1


@pytest.mark.parametrize("leg", ["prefill", "decode"])
async def test_one_request_at_a_time_tries_again_and_its_success_closes_the_circuit(
    start_router: RouterFactory, engines: Engines, leg: str
) -> None:
    router = await start_router(fleet=alone(engines))
    clock = Clock(router)
    engine = engines.maths if leg == "prefill" else engines.decode
    engine.configure(fail_status=500)
    await failing(router)
    clock.now = FIRST
    assert (await router.post(PATH, TEXT))[0] == 502, "the one that tries"
    assert (await router.post(PATH, TEXT))[1]["error"]["code"] == f"{leg}_circuit_open"
    engine.reset()
    clock.now += PROBE
    engine.configure(accept_seconds=0.3)
    trial = asyncio.ensure_future(router.post(PATH, TEXT))
    await until(lambda: any(one["outcome"] == "running" for one in engine.requests()))
    assert (await router.post(PATH, TEXT))[1]["error"]["code"] == f"{leg}_circuit_open", "only one"
    assert (await trial)[0] == 200
    assert gauge(router, "acme/maths", leg) == 0
    assert (await router.post(PATH, TEXT))[0] == 200


async def test_an_ejected_pod_comes_back_beside_a_well_one(start_router: RouterFactory, engines: Engines) -> None:
    """The request that tries it is placed twice, before its prompt is counted and after: it stays where it is."""
    router = await start_router()
    clock = Clock(router)
    engines.decode.configure(fail_status=500)
    await asked_until(router, lambda: bool(router.parts.load.ejected()))
    engines.decode.reset()
    clock.now = FIRST
    answered = len(engines.decode.requests())
    await asked_until(router, lambda: len(engines.decode.requests()) > answered)
    assert not router.parts.load.ejected()


async def asked_until(router: Router, holds: Callable[[], bool]) -> None:
    """Ask until it holds; which pod gets a request of several idle ones is chance."""
    for _ in range(60):
        await router.post(PATH, TEXT)
        if holds():
            return
    raise AssertionError("60 requests were not enough")


async def test_a_stream_that_has_begun_lets_others_follow(start_router: RouterFactory, engines: Engines) -> None:
    router = await start_router(fleet=alone(engines))
    clock = Clock(router)
    engines.decode.configure(fail_status=500)
    await failing(router)
    engines.decode.reset()
    engines.decode.configure(hang="stream", hang_after_tokens=1, requests=1)
    clock.now = FIRST
    stream = asyncio.ensure_future(router.stream(PATH, TEXT))
    await until(lambda: any(one["outcome"] == "running" for one in engines.decode.requests()))
    await until(lambda: not gauge(router, "acme/maths", "decode"))
    assert (await router.post(PATH, TEXT))[0] == 200
    stream.cancel()


async def test_pods_that_hang_open_the_circuit_as_well(start_router: RouterFactory, engines: Engines) -> None:
    router = await start_router(fleet=alone(engines))
    clock = Clock(router)
    pods = [router.parts.fleet.snapshot.tasks["acme/maths"].routes[0].prefill[0]]
    call: Any = SimpleNamespace(tried=set(), task=SimpleNamespace(name="acme/maths"))
    for _ in range(FAILURES):
        late = PhaseTimeoutError("prefill", 1)
        late.pod = pods[0].uid
        router.parts.flow._pairing.note(call, late)
    assert clock.now == 0
    assert (await router.post(PATH, TEXT))[1]["error"]["code"] == "prefill_circuit_open"


async def test_another_task_is_not_touched_by_failing_prefill_pods(router: Router, engines: Engines) -> None:
    Clock(router)
    engines.configure_prefills(fail_status=500)
    for number in range(40):
        await router.post(PATH, {**TEXT, "prompt": f"prompt {number}"})
    assert (await router.post(PATH, TEXT))[1]["error"]["code"] == "prefill_circuit_open"
    assert (await router.post(PATH, {**TEXT, "model": "code"}))[0] == 200
    assert (await router.post("/tokenize", {"model": "acme/maths", "prompt": "x"}))[1]["error"]["code"] == (
        "prefill_circuit_open"
    )
