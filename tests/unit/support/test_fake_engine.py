"""The fake engine over real sockets: the two legs, the accounting, and each way to misbehave."""

from __future__ import annotations

import http.client
import json
import socket
import time
import urllib.error
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sunfleet_api import wire
from sunfleet_fakes.harness import FakeEngine, expected_text, expected_tokens

PROMPT = [101, 102, 103]
CHAT: dict[str, Any] = {"model": wire.ENGINE_MODEL, "messages": [{"role": "user", "content": "one two three"}]}


def prefill_leg(engine: FakeEngine, **fields: Any) -> Any:
    body = {
        "model": wire.ENGINE_MODEL, "prompt": PROMPT, "max_tokens": 1, "return_token_ids": True,
        "kv_transfer_params": wire.prefill_params(20), **fields,
    }  # fmt: skip
    return engine.request("POST", "/v1/completions", body)


def decode_body(answer: Any, **fields: Any) -> dict[str, Any]:
    first = answer["choices"][0]["token_ids"]
    transfer = wire.decode_params(answer["kv_transfer_params"], PROMPT, first, "acme/maths")
    body = {"model": wire.ENGINE_MODEL, "prompt": PROMPT, "max_tokens": 20}
    return {**body, "kv_transfer_params": transfer, **fields}


def decode_leg(engine: FakeEngine, answer: Any, **fields: Any) -> Any:
    return engine.request("POST", "/v1/completions", decode_body(answer, **fields))


def refusal(call: Any, *args: Any, **kwargs: Any) -> tuple[int, dict[str, Any]]:
    with pytest.raises(urllib.error.HTTPError) as caught:
        call(*args, **kwargs)
    with caught.value as error:
        return error.code, json.loads(error.read())["error"]


def stream(engine: FakeEngine, body: dict[str, Any], path: str = "/v1/completions") -> list[str]:
    """Data of every event until the body ends; connection errors pass through."""
    connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=5)
    try:
        connection.request("POST", path, json.dumps({**body, "stream": True}))
        raw = connection.getresponse().read().decode()
    finally:
        connection.close()
    return [line[6:] for line in raw.splitlines() if line.startswith("data: ")]


def text_of(events: list[str]) -> str:
    return "".join(json.loads(event)["choices"][0]["text"] for event in events if event != "[DONE]")


def wait_for(condition: Any, seconds: float = 3.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not within the time"
        time.sleep(0.01)


def test_both_legs_give_the_expected_answer(prefill: FakeEngine, decoder: FakeEngine) -> None:
    answer = decode_leg(decoder, prefill_leg(prefill))
    expected = expected_text("maths", "base", PROMPT, answer_tokens=16, max_tokens=20)
    assert answer["choices"][0]["text"] == expected
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["model"] == "acme/maths"
    assert answer["usage"]["completion_tokens"] == 16


def test_a_stream_carries_the_same_text_as_a_whole_answer(prefill: FakeEngine, decoder: FakeEngine) -> None:
    events = stream(decoder, decode_body(prefill_leg(prefill), max_tokens=5))
    assert events[-1] == "[DONE]"
    assert text_of(events) == expected_text("maths", "base", PROMPT, answer_tokens=16, max_tokens=5)
    assert json.loads(events[-2])["choices"][0]["finish_reason"] == "length"


def test_chat_streams_open_with_the_role_and_close_with_usage(prefill: FakeEngine, decoder: FakeEngine) -> None:
    leg = {**CHAT, "max_tokens": 1, "return_token_ids": True, "kv_transfer_params": wire.prefill_params(2)}
    answer = prefill.request("POST", "/v1/chat/completions", leg)
    prompt, output = answer["prompt_token_ids"], answer["choices"][0]["token_ids"]
    transfer = wire.decode_params(answer["kv_transfer_params"], prompt, output, "acme/maths")
    body = {**CHAT, "max_tokens": 2, "stream_options": {"include_usage": True}, "kv_transfer_params": transfer}
    events = [json.loads(event) for event in stream(decoder, body, "/v1/chat/completions") if event != "[DONE]"]
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["completion_tokens"] == 2


def test_a_prefill_refuses_to_go_on_by_itself(prefill: FakeEngine) -> None:
    for fields in ({"max_tokens": 2}, {"stream": True}, {"kv_transfer_params": None}):
        status, error = refusal(prefill_leg, prefill, **fields)
        assert (status, error["code"]) == (400, "handover_incomplete")
    assert prefill.metric("fake:kv_blocks_used") == 0


def test_another_prefill_module_gives_another_answer(decoder: FakeEngine, prefill: FakeEngine) -> None:
    with FakeEngine("prefill", identity="code", kv_fingerprint="k") as other:
        texts = [decode_leg(decoder, prefill_leg(engine))["choices"][0]["text"] for engine in (prefill, other)]
    assert texts[0] != texts[1]


def test_wrong_tokens_so_far_spoil_the_rest(prefill: FakeEngine, decoder: FakeEngine) -> None:
    answer = prefill_leg(prefill)
    answer["choices"][0]["token_ids"] = [12345]
    expected = expected_text("maths", "base", PROMPT, answer_tokens=16, max_tokens=20)
    assert decode_leg(decoder, answer)["choices"][0]["text"].split()[1:] != expected.split()[1:]


def test_a_resume_from_the_tokens_so_far_is_exact(prefill: FakeEngine, decoder: FakeEngine) -> None:
    expected = expected_tokens("maths", "base", PROMPT, answer_tokens=16, max_tokens=20)
    answer = prefill_leg(prefill)
    answer["choices"][0]["token_ids"] = expected[:7]
    resumed = decode_leg(decoder, answer, return_token_ids=True)
    assert resumed["choices"][0]["token_ids"] == expected


def test_the_decoder_refuses_an_incomplete_handover(prefill: FakeEngine, decoder: FakeEngine) -> None:
    body = decode_body(prefill_leg(prefill))
    for name in (*wire.REQUIRED_TRANSFER_FIELDS, wire.KEY_OUTPUT_TOKEN_IDS):
        params = {key: value for key, value in body["kv_transfer_params"].items() if key != name}
        status, error = refusal(decoder.request, "POST", "/v1/completions", {**body, "kv_transfer_params": params})
        assert (status, error["code"]) == (400, "handover_incomplete")
        assert name in error["message"]
    assert decoder.prompt_tokens("local_compute") == 0


def test_blocks_are_held_until_the_decoder_has_read_them(prefill: FakeEngine, decoder: FakeEngine) -> None:
    answer = prefill_leg(prefill)
    assert prefill.metric("fake:kv_blocks_used") == 1
    decode_leg(decoder, answer)
    assert prefill.metric("fake:kv_blocks_used") == 0
    status, error = refusal(decode_leg, decoder, answer)
    assert (status, error["code"]) == (503, "sun_kv_load_failed")
    assert decoder.metric("fake:kv_blocks_used") == 0


def test_an_expired_lease_frees_the_blocks_and_fails_late_readers(prefill: FakeEngine, decoder: FakeEngine) -> None:
    prefill.configure(kv_lease_seconds=0.05)
    answer = prefill_leg(prefill)
    time.sleep(0.1)
    assert refusal(decode_leg, decoder, answer)[0] == 503
    assert prefill.metric("fake:kv_leases_expired_total") == 1
    assert prefill.metric("vllm:kv_cache_usage_perc") == 0


def test_kv_of_another_fingerprint_is_refused(prefill: FakeEngine) -> None:
    with FakeEngine("decode", kv_fingerprint="other") as decoder:
        status, error = refusal(decode_leg, decoder, prefill_leg(prefill))
    assert status == 503
    assert "fingerprint" in error["message"]


def test_prompt_tokens_are_counted_by_source(prefill: FakeEngine, decoder: FakeEngine) -> None:
    decode_leg(decoder, prefill_leg(prefill))
    assert prefill.prompt_tokens("local_compute") == 3
    assert decoder.prompt_tokens("external_kv_transfer") == 3
    assert decoder.prompt_tokens("local_compute") == 0


def test_an_answer_of_one_token_is_handed_over_to_nobody(prefill: FakeEngine) -> None:
    prefill.configure(answer_tokens=1)
    answer = prefill_leg(prefill)
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["kv_transfer_params"] is None
    assert prefill.metric("fake:kv_leases") == 0


def test_requests_wait_for_blocks_and_are_served_in_the_end(prefill: FakeEngine, decoder: FakeEngine) -> None:
    prefill.configure(kv_blocks=2, kv_lease_seconds=0.2)
    started = time.monotonic()
    for _ in range(3):
        prefill_leg(prefill)
    assert time.monotonic() - started > 0.15


def test_running_out_of_blocks_while_decoding_is_a_preemption(prefill: FakeEngine, decoder: FakeEngine) -> None:
    decoder.configure(kv_blocks=3, tokens_per_second=200)
    bodies = [decode_body(prefill_leg(prefill), ignore_eos=True) for _ in range(2)]  # two blocks each
    with ThreadPoolExecutor() as threads:
        ends = [events[-1] for events in threads.map(lambda body: stream(decoder, body), bodies)]
    assert ends.count("[DONE]") == 1
    assert sum("sun_preempted" in end for end in ends) == 1
    assert decoder.metric("vllm:num_preemptions_total") == 1
    assert decoder.metric("fake:kv_blocks_used") == 0


def leave_while_running(engine: FakeEngine, body: dict[str, Any]) -> None:
    """Send a request and close the connection once it runs; return when the engine has given up too."""
    raw = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", engine.port)) as client:
        client.sendall(head + raw)
        wait_for(lambda: engine.metric("vllm:num_requests_running") == 1)
    wait_for(lambda: engine.metric("vllm:num_requests_running") == 0)
    assert engine.requests()[-1]["outcome"] == "disconnected"
    assert engine.metric("fake:kv_blocks_used") == 0


def test_a_client_that_leaves_stops_a_prefill(prefill: FakeEngine) -> None:
    prefill.configure(hang="prefill")
    leg = {"model": wire.ENGINE_MODEL, "prompt": PROMPT, "max_tokens": 1}
    leave_while_running(prefill, {**leg, "kv_transfer_params": wire.prefill_params(9)})


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("phase", ["kv_load", "first_token", "stream"])
def test_a_client_that_leaves_stops_a_decode(
    prefill: FakeEngine, decoder: FakeEngine, phase: str, streamed: bool
) -> None:
    decoder.configure(hang=phase, hang_after_tokens=2)
    leave_while_running(decoder, decode_body(prefill_leg(prefill), stream=streamed))


def test_a_missing_transfer_field_can_be_asked_for(prefill: FakeEngine) -> None:
    prefill.configure(drop_transfer_fields=["remote_port"], requests=1)
    assert wire.missing_fields(prefill_leg(prefill)["kv_transfer_params"]) == ("remote_port",)
    assert wire.missing_fields(prefill_leg(prefill)["kv_transfer_params"]) == ()


def test_statuses_and_garbage_can_be_asked_for(prefill: FakeEngine) -> None:
    prefill.configure(fail_status=429, fail_code="busy")
    assert refusal(prefill_leg, prefill)[0] == 429
    prefill.reset()
    prefill.configure(garbage_json=True)
    with pytest.raises(json.JSONDecodeError):
        prefill_leg(prefill)


@pytest.mark.parametrize("death", ["exit", "reset"])
def test_dying_after_some_tokens_breaks_the_connection(prefill: FakeEngine, decoder: FakeEngine, death: str) -> None:
    decoder.configure(die_after_tokens=3, die=death)
    with pytest.raises((ConnectionError, http.client.IncompleteRead)):
        stream(decoder, decode_body(prefill_leg(prefill)))


def test_a_truncated_stream_ends_cleanly_without_its_end_mark(prefill: FakeEngine, decoder: FakeEngine) -> None:
    decoder.configure(die_after_tokens=3, die="truncate")
    events = stream(decoder, decode_body(prefill_leg(prefill)))
    assert len(events) == 3
    assert events[-1] != "[DONE]"


def test_an_error_in_midstream_is_an_event_without_an_end_mark(prefill: FakeEngine, decoder: FakeEngine) -> None:
    decoder.configure(fail_after_tokens=2, fail_code="sun_preempted")
    events = stream(decoder, decode_body(prefill_leg(prefill)))
    assert json.loads(events[-1])["error"]["code"] == "sun_preempted"
    assert len(events) == 3


@pytest.mark.parametrize("framing", ["split", "merged", "crlf"])
def test_odd_framing_keeps_the_content(prefill: FakeEngine, decoder: FakeEngine, framing: str) -> None:
    decoder.configure(framing=framing)
    events = stream(decoder, decode_body(prefill_leg(prefill)))
    assert text_of(events) == expected_text("maths", "base", PROMPT, answer_tokens=16, max_tokens=20)


def test_tokens_come_at_the_asked_rate(prefill: FakeEngine, decoder: FakeEngine) -> None:
    decoder.configure(tokens_per_second=100)
    started = time.monotonic()
    stream(decoder, decode_body(prefill_leg(prefill)))
    assert time.monotonic() - started >= 0.15


def test_sigterm_drains_running_streams_and_leases(prefill: FakeEngine, decoder: FakeEngine) -> None:
    answer = prefill_leg(prefill)
    prefill.terminate()
    wait_for(lambda: refused_ready(prefill))
    assert refusal(prefill_leg, prefill)[1]["code"] == "sun_draining"
    assert decode_leg(decoder, answer)["choices"][0]["finish_reason"] == "stop"
    assert prefill.wait() == 0


def refused_ready(engine: FakeEngine) -> bool:
    try:
        engine.request("GET", "/sunfleet/readyz")
    except urllib.error.HTTPError as error:
        with error:
            return error.code == 503
    return False


def test_probes_and_info_tell_what_they_are_told(prefill: FakeEngine) -> None:
    info = wire.EngineInfo.model_validate(prefill.request("GET", "/sunfleet/info"))
    assert (info.role, info.kv_capacity_tokens, info.kv_fingerprint) == ("prefill", 1024 * 16, "k")
    prefill.configure(ready=False, healthy=False)
    assert refused_ready(prefill)
    with pytest.raises(urllib.error.HTTPError) as caught:
        prefill.request("GET", "/health")
    caught.value.close()


def test_an_unknown_model_and_a_too_long_prompt_are_refused(prefill: FakeEngine) -> None:
    assert refusal(prefill_leg, prefill, model="gpt")[0] == 404
    assert refusal(prefill_leg, prefill, kv_transfer_params=wire.prefill_params(9000))[0] == 400


def test_an_unknown_behaviour_is_refused(prefill: FakeEngine) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        prefill.configure(hnag="prefill")
    caught.value.close()


def test_it_starts_quickly() -> None:
    started = time.monotonic()
    with FakeEngine("decode") as engine:
        engine.request("GET", "/health")
    assert time.monotonic() - started < 10
