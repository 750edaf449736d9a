"""Answers that are made again: what is sampled, which path they take, what is counted, and that nobody notices."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, get_args

import pytest

from sunfleet_router.bodies.comparing import Outcome
from sunfleet_router_harness import SALT, Engines, Router, RouterFactory, fleet_file
from sunfleet_router_streams import PATHS, PROMPT, QUESTIONS, aimed_at, count, events_of, right_text, text_of, until

TASK = "acme/maths"
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 16}
Start = Callable[..., Any]


@pytest.fixture
async def sampling(start_router: RouterFactory, engines: Engines) -> Start:
    """Starts a router that makes so many answers of a million again."""

    async def start(rate: int = 1_000_000, **settings: Any) -> Router:
        fleet = fleet_file(engines)
        fleet["tasks"][0]["samplePerMillion"] = rate
        return await start_router(fleet=fleet, settings=settings)

    return start


def outcomes(router: Router) -> dict[str, float]:
    counted = {outcome: count(router, "shadow_checks", TASK, outcome) for outcome in get_args(Outcome)}
    return {outcome: value for outcome, value in counted.items() if value}


async def checked(router: Router) -> dict[str, float]:
    await until(lambda: not router.parts.shadow.running)
    await router.settled()
    return outcomes(router)


async def ask(router: Router, kind: str, *, stream: bool, request_id: str = "r", **fields: Any) -> None:
    """One greedy request, whose answer must be whole."""
    if stream:
        assert (await events_of(router, kind, request_id, **GREEDY, **fields))[-1] == "[DONE]"
        return
    body = {**QUESTIONS[kind], **GREEDY, **fields}
    status, _ = await router.post(PATHS[kind], body, **{"x-request-id": request_id})
    assert status == 200


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("kind", ["chat", "completion"])
async def test_an_answer_is_made_again_on_other_pods_with_a_salt_of_its_own(
    sampling: Start, engines: Engines, kind: str, stream: bool
) -> None:
    router = await sampling()
    request_id = aimed_at(engines, engines.decode)
    await ask(router, kind, stream=stream, request_id=request_id)
    assert await checked(router) == {"match": 1}
    (first,), (second,) = engines.decode.requests(), engines.decode_too.requests()
    assert [len(engine.requests()) for engine in (engines.maths, engines.maths_too)] == [1, 1]
    salts = {one["body"]["cache_salt"] for one in (*engines.prefill_requests(), first, second)}
    assert len(salts) == 2
    assert SALT in salts
    assert (
        second["body"]["kv_transfer_params"]["prompt_token_ids"]
        == first["body"]["kv_transfer_params"]["prompt_token_ids"]
    )


async def test_a_wrong_decoder_is_found_and_named_without_any_text(
    sampling: Start, engines: Engines, caplog: pytest.LogCaptureFixture
) -> None:
    router = await sampling()
    engines.decode.configure(repeat_token_at=5)
    with caplog.at_level(logging.ERROR, "sunfleet_router.serving.shadow"):
        await ask(router, "completion", stream=True, request_id=aimed_at(engines, engines.decode))
        assert await checked(router) == {"mismatch": 1}
    (line,) = [record.getMessage() for record in caplog.records if record.name == "sunfleet_router.serving.shadow"]
    assert f"request {aimed_at(engines, engines.decode)} of {TASK!r} was answered inexactly" in line
    assert "position 6" in line
    first, _, second = line.partition("Pods: ")[2].partition("; again: ")
    assert {*first.split(", "), *second.split(", ")} == {"d0", "d1", "p0", "p1"}
    assert not {*right_text().split(), *PROMPT.split()} & {*line.partition("Pods: ")[0].split()} - {"is"}


async def test_a_decoder_that_computes_the_prompt_itself_is_found(sampling: Start, engines: Engines) -> None:
    router = await sampling()
    engines.decode.configure(recompute_prompt=True)
    await ask(router, "chat", stream=False, request_id=aimed_at(engines, engines.decode))
    assert await checked(router) == {"mismatch": 1}


async def test_an_answer_that_broke_off_is_compared_as_a_whole(sampling: Start, engines: Engines) -> None:
    router = await sampling()
    engines.decode.configure(fail_after_tokens=3, fail_code="sun_preempted")
    await ask(router, "completion", stream=True, request_id=aimed_at(engines, engines.decode))
    engines.decode.configure()
    assert await checked(router) in ({"match": 1}, {"failed": 1})
    assert count(router, "resumed_streams", TASK, "completed") == 1


@pytest.mark.parametrize(
    "fault",
    [
        {"fail_status": 503},
        {"fail_after_tokens": 3, "fail_code": "sun_preempted"},
        {"die_after_tokens": 4, "die": "truncate"},
    ],
)
async def test_what_goes_wrong_meanwhile_is_no_mismatch(
    sampling: Start, engines: Engines, fault: dict[str, Any]
) -> None:
    router = await sampling()
    engines.decode_too.configure(**fault)
    await ask(router, "completion", stream=True, request_id=aimed_at(engines, engines.decode))
    assert await checked(router) == {"failed": 1}
    assert outcomes(router).get("mismatch") is None


async def test_a_first_token_that_ends_the_text_is_no_verdict(sampling: Start, engines: Engines) -> None:
    """Nothing says how close the two tokens were."""
    router = await sampling()
    engines.decode.configure(first_token_seconds=0.1)
    asked = asyncio.ensure_future(ask(router, "completion", stream=True, request_id=aimed_at(engines, engines.decode)))
    await until(engines.decode.requests)
    engines.configure_prefills(answer_tokens=1)
    await asked
    assert await checked(router) == {"failed": 1}
    assert engines.decode_too.requests() == []


async def test_a_client_sees_nothing_of_it(sampling: Start, engines: Engines) -> None:
    quiet, loud = await sampling(0), await sampling()
    for kind in ("chat", "completion"):
        for more in ({}, {"return_token_ids": True}):
            body = {**QUESTIONS[kind], **GREEDY, **more}
            plain, sampled = [
                (await router.post(PATHS[kind], body, **{"x-request-id": "same"}))[1] for router in (quiet, loud)
            ]
            for answer in (plain, sampled):
                answer.pop("created")
            assert sampled == plain
    await checked(loud)
    assert outcomes(quiet) == {}


@pytest.mark.parametrize(
    "fields", [{"temperature": 0.5}, {"temperature": None}, {"presence_penalty": 1.0}, {"max_tokens": 1}], ids=str
)
async def test_what_cannot_be_compared_is_not_made_again(
    sampling: Start, engines: Engines, fields: dict[str, Any]
) -> None:
    router = await sampling()
    await router.post(PATHS["completion"], {**QUESTIONS["completion"], **GREEDY, **fields})
    assert await checked(router) == {}
    assert len(engines.prefill_requests()) == 1


async def test_the_share_is_the_tasks(sampling: Start, engines: Engines) -> None:
    router = await sampling(250_000)
    draws = iter([0.2499, 0.25, 0.9])
    router.parts.shadow._draw = lambda: next(draws)
    for _ in range(3):
        await ask(router, "completion", stream=False)
        await checked(router)
    assert outcomes(router) == {"match": 1}


async def test_one_at_a_time_and_the_others_are_counted(sampling: Start, engines: Engines) -> None:
    router = await sampling()
    engines.decode_too.configure(hang="first_token")
    request_id = aimed_at(engines, engines.decode)
    await ask(router, "completion", stream=True, request_id=request_id)
    await until(engines.decode_too.requests)
    for _ in range(2):
        await ask(router, "completion", stream=True, request_id=request_id)
    assert outcomes(router) == {"skipped": 2}
    await router.parts.shadow.close()
    assert await checked(router) == {"skipped": 3}


async def test_it_gives_up_its_room_as_soon_as_somebody_waits(sampling: Start, engines: Engines) -> None:
    router = await sampling()
    engines.decode_too.configure(hang="first_token")
    await ask(router, "completion", stream=True, request_id=aimed_at(engines, engines.decode))
    await until(engines.decode_too.requests)
    router.parts.admission.waiting.requests["code"] += 1
    await until(lambda: not router.parts.shadow.running, 2)
    assert outcomes(router) == {"skipped": 1}
    await ask(router, "completion", stream=True, request_id=aimed_at(engines, engines.decode))
    assert outcomes(router) == {"skipped": 2}, "none while somebody waits"
    del router.parts.admission.waiting.requests["code"]


async def test_without_room_it_does_not_wait(sampling: Start, engines: Engines) -> None:
    router = await sampling()
    full = 16_384
    request_id = aimed_at(engines, engines.decode)
    events = asyncio.ensure_future(events_of(router, "completion", request_id, **GREEDY))
    engines.decode.configure(first_token_seconds=0.1)
    await until(engines.decode.requests)
    uids = [f"decode:127.0.0.1:{engine.port}" for engine in (engines.decode, engines.decode_too)]
    for uid in uids:
        router.parts.admission.reserved[uid] += full
    assert text_of(await events)
    await until(lambda: not router.parts.shadow.running)
    assert outcomes(router) == {"skipped": 1}
    for uid in uids:
        del router.parts.admission.reserved[uid]


async def test_a_router_that_leaves_gives_it_up(sampling: Start, engines: Engines) -> None:
    router = await sampling()
    engines.decode_too.configure(hang="first_token")
    await ask(router, "completion", stream=True, request_id=aimed_at(engines, engines.decode))
    await until(engines.decode_too.requests)
    router.stop.set()
    await asyncio.wait_for(router.task, 5)
    assert outcomes(router) == {"skipped": 1}


async def test_every_outcome_is_there_as_0_for_tasks_that_sample(sampling: Start) -> None:
    router = await sampling()
    metric, labels = "sunfleet_router_shadow_checks_total", {"task": TASK, "outcome": "mismatch"}
    assert router.parts.metrics.registry.get_sample_value(metric, labels) == 0
    assert router.parts.metrics.registry.get_sample_value(metric, labels | {"task": "code"}) is None
