"""A stream that breaks off goes on elsewhere: the client gets the events of an unbroken one, each exactly once."""

from __future__ import annotations

import random
from typing import Any

import pytest

from sunfleet_api import wire
from sunfleet_fakes.harness import tokenize
from sunfleet_router_harness import Engines, Router, RouterFactory, fleet_file
from sunfleet_router_streams import (
    PROMPT,
    aimed_at,
    count,
    error_of,
    events_of,
    right_text,
    text_of,
    without_times,
)

BLOCK = 16  # of the fake engine
LONG: dict[str, Any] = {"max_tokens": 150, "stream_options": {"include_usage": True}}
LOGPROBS: dict[str, dict[str, Any]] = {
    "chat": {"logprobs": True, "top_logprobs": 2}, "completion": {"logprobs": 2},
}  # fmt: skip
TASK = "acme/maths"


async def broken_and_whole(
    router: Router, engines: Engines, kind: str, fault: dict[str, Any], **fields: Any
) -> tuple[list[Any], list[Any]]:
    """The same request twice, first without any fault; the second meets one on its first decode pod."""
    for engine in (engines.decode, engines.decode_too):
        engine.configure(answer_tokens=120)
    engines.configure_prefills(answer_tokens=120)
    request_id = aimed_at(engines, engines.decode)
    whole = await events_of(router, kind, request_id, **LONG, **fields)
    engines.decode.configure(**fault)
    broken = await events_of(router, kind, request_id, **LONG, **fields)
    assert engines.decode.requests()[-1]["outcome"] != "completed", "the fault was not met"
    return without_times(broken), without_times(whole)


@pytest.mark.parametrize("logprobs", [False, True], ids=["plain", "logprobs"])
@pytest.mark.parametrize("kind", ["chat", "completion"])
@pytest.mark.parametrize("after", [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 100])
async def test_after_any_number_of_tokens_a_preempted_stream_goes_on_exactly(
    router: Router, engines: Engines, kind: str, after: int, logprobs: bool
) -> None:
    fault = {"fail_after_tokens": after, "fail_code": "sun_preempted"}
    broken, whole = await broken_and_whole(router, engines, kind, fault, **(LOGPROBS[kind] if logprobs else {}))
    assert broken == whole
    assert whole[-1] == "[DONE]"
    assert whole[-2]["usage"]["completion_tokens"] == 120
    assert count(router, "resumes", TASK, "preempted") == 1
    assert count(router, "resumed_streams", TASK, "completed") == 1
    assert count(router, "replayed_tokens", TASK) == after


@pytest.mark.parametrize("kind", ["chat", "completion"])
@pytest.mark.parametrize("die", ["reset", "truncate"])
@pytest.mark.parametrize("after", [1, BLOCK])
async def test_a_connection_that_breaks_is_survived_on_another_pod(
    router: Router, engines: Engines, kind: str, die: str, after: int
) -> None:
    fault = {"die_after_tokens": after, "die": die}
    broken, whole = await broken_and_whole(router, engines, kind, fault)
    assert broken == whole
    assert len(engines.decode_too.requests()) == 1
    assert count(router, "resumes", TASK, "cut") == 1


async def test_a_pod_that_dies_is_survived_on_another(router: Router, engines: Engines) -> None:
    engines.decode.configure(die_after_tokens=5, die="exit", tokens_per_second=50)
    events = await events_of(router, "completion", aimed_at(engines, engines.decode))
    assert text_of(events) == right_text()
    assert events[-1] == "[DONE]"


async def test_a_role_that_was_told_is_not_told_again(router: Router, engines: Engines) -> None:
    fault = {"die_after_opening": True, "die": "truncate"}
    broken, whole = await broken_and_whole(router, engines, "chat", fault, **LOGPROBS["chat"])
    assert broken == whole
    (leg,) = engines.decode_too.requests()
    params = leg["body"]["kv_transfer_params"]
    assert (params[wire.KEY_TOLD_TOKENS], len(params[wire.KEY_OUTPUT_TOKEN_IDS])) == (0, 1)


@pytest.mark.parametrize("kind", ["chat", "completion"])
async def test_a_failure_before_the_first_event_is_a_plain_retry(router: Router, engines: Engines, kind: str) -> None:
    broken, whole = await broken_and_whole(
        router, engines, kind, {"fail_after_tokens": 0, "fail_code": "sun_preempted"}
    )
    assert broken == whole
    assert count(router, "retries", TASK) == 1
    assert count(router, "resumes", TASK, "preempted") == 0


async def test_a_stream_that_falls_silent_goes_on_elsewhere(start_router: RouterFactory, engines: Engines) -> None:
    router = await start_router(timeouts={"interTokenSeconds": 1})
    engines.decode.configure(hang="stream", hang_after_tokens=3)
    events = await events_of(router, "completion", aimed_at(engines, engines.decode))
    assert (text_of(events), events[-1]) == (right_text(), "[DONE]")
    assert engines.decode.requests()[0]["outcome"] == "disconnected"
    assert count(router, "resumes", TASK, "silent") == 1


@pytest.mark.parametrize("kind", ["chat", "completion"])
async def test_a_stream_that_breaks_again_and_again_stays_exact(router: Router, engines: Engines, kind: str) -> None:
    engines.configure_prefills(answer_tokens=40)
    engines.configure_decoders(answer_tokens=40)
    request_id = aimed_at(engines, engines.decode)
    whole = await events_of(router, kind, request_id, **LONG, **LOGPROBS[kind])
    engines.configure_decoders(fail_after_tokens=3, fail_code="sun_preempted")
    broken = await events_of(router, kind, request_id, **LONG, **LOGPROBS[kind])
    assert without_times(broken) == without_times(whole)
    assert count(router, "resumes", TASK, "preempted") == 13


async def test_a_resume_that_fails_is_tried_again(router: Router, engines: Engines) -> None:
    engines.decode.configure(die_after_tokens=4, die="truncate")
    engines.decode_too.configure(fail_status=503, fail_code="sun_preempted", requests=1)
    events = await events_of(router, "completion", aimed_at(engines, engines.decode))
    assert (text_of(events), events[-1]) == (right_text(), "[DONE]")
    assert [count(router, "resumes", TASK, reason) for reason in ("cut", "failed")] == [1, 1]


@pytest.mark.parametrize("kind", ["chat", "completion"])
@pytest.mark.parametrize("framing", ["split", "merged", "crlf"])
async def test_however_events_are_cut_into_writes_a_break_loses_none(
    router: Router, engines: Engines, kind: str, framing: str
) -> None:
    engines.decode_too.configure(framing=framing)
    fault = {"die_after_tokens": BLOCK + 1, "die": "truncate", "framing": framing}
    broken, whole = await broken_and_whole(router, engines, kind, fault, **LOGPROBS[kind])
    assert broken == whole


@pytest.mark.parametrize("seed", range(12))
async def test_any_series_of_breaks_is_survived(router: Router, engines: Engines, seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 a test
    kind, length = draw.choice(["chat", "completion"]), draw.randint(2, 40)
    fields = {**LONG, **(LOGPROBS[kind] if draw.random() < 0.5 else {}), "max_tokens": draw.randint(2, 40)}
    engines.configure_prefills(answer_tokens=length)
    engines.configure_decoders(answer_tokens=length)
    whole = await events_of(router, kind, f"seed-{seed}", **fields)
    for engine in (engines.decode, engines.decode_too):
        faults = (
            {"fail_after_tokens": draw.randint(1, 9)},
            {"die_after_tokens": draw.randint(1, 9), "die": "truncate"},
        )
        engine.configure(fail_code="sun_preempted", framing=draw.choice(["clean", "split"]), **draw.choice(faults))
    broken = await events_of(router, kind, f"seed-{seed}", **fields)
    for events in (whole, broken):
        events[-2]["usage"].pop("prompt_tokens_details")
    assert without_times(broken) == without_times(whole)


@pytest.mark.parametrize("usage", [True, False])
@pytest.mark.parametrize("kind", ["chat", "completion"])
@pytest.mark.parametrize("fault", ["die_after_finish", "die_after_done"])
async def test_a_stream_whose_text_is_complete_needs_no_other_pod(
    router: Router, engines: Engines, kind: str, fault: str, usage: bool
) -> None:
    request_id = aimed_at(engines, engines.decode)
    options = {"stream_options": {"include_usage": usage}, "max_tokens": 12}
    whole = await events_of(router, kind, request_id, **options)
    engines.decode.configure(die="reset", **{fault: True})
    broken = await events_of(router, kind, request_id, **options)
    for event in (whole[-2], broken[-2]) if usage else ():
        event["usage"].pop("prompt_tokens_details")  # the prefill's count where the decoder did not tell its own
    assert without_times(broken) == without_times(whole)
    assert not engines.decode_too.requests()
    assert len(engines.prefill_requests()) == 2


async def test_the_only_decode_pod_may_preempt_and_go_on(start_router: RouterFactory, engines: Engines) -> None:
    fleet = fleet_file(engines)
    fleet["decoders"][0]["endpoints"].pop()
    router = await start_router(fleet=fleet)
    engines.decode.configure(fail_after_tokens=5, fail_code="sun_preempted")
    events = await events_of(router, "completion", "one")
    assert (text_of(events), events[-1]) == (right_text(), "[DONE]")
    assert len(engines.decode.requests()) == 4


async def test_the_only_decode_pod_may_lose_its_connection_and_go_on(
    start_router: RouterFactory, engines: Engines
) -> None:
    fleet = fleet_file(engines)
    fleet["decoders"][0]["endpoints"].pop()
    router = await start_router(fleet=fleet)
    engines.decode.configure(die_after_tokens=5, die="truncate", requests=1)
    events = await events_of(router, "completion", "one")
    assert (text_of(events), events[-1]) == (right_text(), "[DONE]")


@pytest.mark.parametrize("kind", ["chat", "completion"])
async def test_both_legs_of_a_resume_say_what_the_contract_says(router: Router, engines: Engines, kind: str) -> None:
    engines.decode.configure(fail_after_tokens=7, fail_code="sun_preempted")
    body = {"max_tokens": 12, "stop": ["never"], "seed": 5, "temperature": 0.7, **LOGPROBS[kind]}
    events = await events_of(router, kind, aimed_at(engines, engines.decode), **body)
    first, again = (leg["body"] for leg in sorted(engines.prefill_requests(), key=lambda leg: leg["started"]))
    (begun,), (resumed,) = ([leg["body"] for leg in one.requests()] for one in (engines.decode, engines.decode_too))
    prompt = begun["kv_transfer_params"][wire.KEY_PROMPT_TOKEN_IDS]

    ids = {wire.KEY_PROMPT_TOKEN_IDS: prompt} if kind == "chat" else {}
    assert again.pop("kv_transfer_params") == wire.prefill_params(12, resumed=True) | ids
    assert first.pop("kv_transfer_params") == wire.prefill_params(12)
    assert again == first | ({} if kind == "chat" else {"prompt": prompt})

    was, params = begun.pop("kv_transfer_params"), resumed.pop("kv_transfer_params")
    assert resumed == begun
    assert wire.missing_fields(params) == ()
    assert params["remote_request_id"] != was["remote_request_id"]
    assert was[wire.KEY_PROGRESS] is params[wire.KEY_PROGRESS] is True
    assert wire.KEY_TOLD_TOKENS not in was
    assert params[wire.KEY_TOLD_TOKENS] == len(params[wire.KEY_OUTPUT_TOKEN_IDS]) == 7
    assert params[wire.KEY_OUTPUT_TOKEN_IDS][0] == was[wire.KEY_OUTPUT_TOKEN_IDS][0]
    assert [row[0] for row in params[wire.KEY_OUTPUT_LOGPROBS]["token_ids"]] == params[wire.KEY_OUTPUT_TOKEN_IDS]
    assert params[wire.KEY_CREATED] == events[0]["created"]
    assert params[wire.KEY_PROMPT_TOKEN_IDS] == prompt
    assert kind == "chat" or prompt == tokenize(PROMPT)


async def test_a_whole_answer_asks_for_no_progress_and_is_made_anew(router: Router, engines: Engines) -> None:
    engines.decode.configure(fail_after_tokens=3, fail_code="sun_preempted")
    headers = {"x-request-id": aimed_at(engines, engines.decode)}
    status, answer = await router.post("/v1/completions", {"model": TASK, "prompt": PROMPT}, **headers)
    assert (status, answer["choices"][0]["text"]) == (200, right_text())
    for leg in engines.decode_requests():
        assert not {wire.KEY_PROGRESS, wire.KEY_TOLD_TOKENS} & leg["body"]["kv_transfer_params"].keys()
    assert count(router, "retries", TASK) == 1


async def test_an_error_that_is_the_requests_own_is_not_resumed_and_names_no_address(
    router: Router, engines: Engines
) -> None:
    engines.configure_decoders(fail_after_tokens=4, fail_code="bad_state", fail_message="lost 10.1.2.3:5600")
    events = await events_of(router, "completion", "one")
    error = error_of(events)
    assert (error["code"], error["message"]) == ("engine_error", "lost [address]")
    assert len(events) == 5
    assert len(engines.prefill_requests()) == 1
