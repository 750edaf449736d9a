"""Engines that misbehave: before the first byte another pair is tried, after it the client gets one explicit error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sunfleet_api import wire
from sunfleet_fakes.harness import expected_text, tokenize
from sunfleet_router_harness import Engines, Router, RouterFactory
from sunfleet_router_streams import error_event, good_events

TEXT: dict[str, Any] = {"model": "acme/maths", "prompt": "one two three", "max_tokens": 16}
PATH = "/v1/completions"


def right_text() -> str:
    return expected_text("maths", "base", tokenize("one two three"), answer_tokens=16, max_tokens=16)


@pytest.mark.parametrize("field", wire.REQUIRED_TRANSFER_FIELDS)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_incomplete_hand_over_is_an_error_and_never_decoded(
    router: Router, engines: Engines, field: str, stream: bool
) -> None:
    engines.configure_prefills(drop_transfer_fields=[field])
    status, answer = await router.post(PATH, {**TEXT, "stream": stream})
    assert (status, answer["error"]["code"]) == (502, "handover_incomplete")
    assert field in answer["error"]["message"]
    assert not engines.decode_requests()


@pytest.mark.parametrize("field", ["kv_transfer_params", "prompt_token_ids", "token_ids"])
async def test_an_answer_without_the_hand_overs_parts_is_never_decoded(
    router: Router, engines: Engines, field: str
) -> None:
    engines.configure_prefills(drop_answer_fields=[field])
    status, answer = await router.post(PATH, TEXT)
    assert (status, answer["error"]["code"]) == (502, "handover_incomplete")
    assert not engines.decode_requests()


async def test_one_bad_prefill_pod_is_survived_by_the_other(router: Router, engines: Engines) -> None:
    for fault in (
        {"drop_transfer_fields": ["remote_port"]},
        {"garbage_json": True},
        {"fail_status": 503},
        {"die_after_tokens": 0, "die": "reset"},
    ):
        engines.maths.reset()
        engines.maths.configure(**fault)
        for _ in range(4):
            status, answer = await router.post(PATH, TEXT)
            assert (status, answer["choices"][0]["text"]) == (200, right_text()), fault


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "fault",
    [
        {"fail_status": 503, "fail_code": "sun_draining"},
        {"fail_status": 502},
        {"die_after_tokens": 0, "die": "reset"},
        {"die_after_tokens": 0, "die": "exit"},
        {"die_after_tokens": 0, "die": "truncate"},
        {"fail_after_tokens": 0},
    ],
    ids=str,
)
async def test_a_decode_pod_that_fails_before_its_first_byte_costs_another_prefill_and_nothing_else(
    router: Router, engines: Engines, fault: dict[str, Any], stream: bool
) -> None:
    engines.decode.configure(**fault)
    for asked in range(1, 40):
        async with router.http.post(router.url + PATH, json={**TEXT, "stream": stream}) as answer:
            text = await answer.text()
            assert answer.status == 200, text
        choices = [one["choices"][0] for one in (good_events(text) if stream else [json.loads(text)]) if one["choices"]]
        assert "".join(choice["text"] for choice in choices) == right_text()
        if len(engines.prefill_requests()) == asked + 1:
            break  # the request met the bad pod
    else:
        raise AssertionError("no request ever met the bad pod")


@pytest.mark.parametrize("stream", [False, True])
async def test_with_every_decode_pod_dead_the_client_gets_503_and_a_time_to_retry(
    router: Router, engines: Engines, stream: bool
) -> None:
    engines.decode.kill()
    engines.decode_too.kill()
    async with router.http.post(router.url + PATH, json={**TEXT, "stream": stream}) as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (503, "engine_unreachable")
        assert "retry-after" in answer.headers
    assert len(engines.prefill_requests()) == 2


@pytest.mark.parametrize("status", [400, 422])
async def test_what_the_prefill_says_of_the_request_is_passed_on(router: Router, engines: Engines, status: int) -> None:
    engines.configure_prefills(
        fail_status=status, fail_message="temperature must be non-negative", fail_code="bad_value"
    )
    got, answer = await router.post(PATH, TEXT)
    assert (got, answer["error"]["message"]) == (status, "temperature must be non-negative")
    assert answer["error"]["type"] == "invalid_request_error"
    assert len(engines.prefill_requests()) == 1


async def test_an_engines_500_is_not_tried_again(router: Router, engines: Engines) -> None:
    engines.configure_prefills(fail_status=500)
    status, answer = await router.post(PATH, TEXT)
    assert (status, answer["error"]["code"]) == (502, "sun_fault")
    assert len(engines.prefill_requests()) == 1


@pytest.mark.parametrize("die", ["reset", "exit", "truncate"])
@pytest.mark.parametrize("after", [2, 5])
async def test_a_stream_that_breaks_off_and_cannot_go_on_ends_with_an_error_and_no_done(
    start_router: RouterFactory, engines: Engines, die: str, after: int
) -> None:
    router = await start_router(settings={"resume_limit": 1})
    engines.configure_decoders(die_after_tokens=after, die=die, tokens_per_second=20)
    stream = await router.stream(PATH, TEXT)
    assert error_event(stream)["code"] == "stream_interrupted"
    text = "".join(event["choices"][0]["text"] for event in good_events(stream))
    assert right_text().startswith(text)
    assert after <= len(good_events(stream)) <= 2 * after


@pytest.mark.parametrize("die", ["reset", "truncate"])
async def test_a_whole_answer_that_breaks_off_is_made_again(router: Router, engines: Engines, die: str) -> None:
    engines.decode.configure(die_after_tokens=5, die=die)
    for _ in range(3):
        status, answer = await router.post(PATH, TEXT)
        assert (status, answer["choices"][0]["text"]) == (200, right_text())


@pytest.mark.parametrize("framing", ["split", "merged", "crlf"])
async def test_any_cut_of_the_events_into_writes_gives_the_same_stream(
    router: Router, engines: Engines, framing: str
) -> None:
    engines.configure_decoders(framing=framing)
    stream = (await router.stream(PATH, TEXT)).replace("\r\n", "\n")
    assert stream.endswith("data: [DONE]\n\n")
    assert "".join(event["choices"][0]["text"] for event in good_events(stream)) == right_text()


async def test_an_end_mark_that_is_missing_after_the_whole_text_is_written_by_the_router(
    router: Router, engines: Engines
) -> None:
    engines.configure_decoders(framing="no_done")
    stream = await router.stream(PATH, TEXT)
    assert stream.endswith("data: [DONE]\n\n")
    assert "".join(event["choices"][0]["text"] for event in good_events(stream)) == right_text()
