"""The fake engine's side of a resume: progress lines, silent replay, log-probabilities handed over, release."""

from __future__ import annotations

import http.client
import json
import urllib.error
from typing import Any

import pytest

from sunfleet_api import wire
from sunfleet_fakes.harness import FakeEngine, expected_text, expected_tokens

PROMPT = [101, 102, 103]
TOKENS = expected_tokens("maths", "base", PROMPT, answer_tokens=16, max_tokens=20)
TEXT = expected_text("maths", "base", PROMPT, answer_tokens=16, max_tokens=20)


def prefilled(engine: FakeEngine, *, resumed: bool = False, **fields: Any) -> dict[str, Any]:
    """``kv_transfer_params`` of a prefill answer."""
    body = {
        "model": wire.ENGINE_MODEL, "prompt": PROMPT, "max_tokens": 1, "return_token_ids": True,
        "kv_transfer_params": wire.prefill_params(20, resumed=resumed), **fields,
    }  # fmt: skip
    transfer: dict[str, Any] = engine.request("POST", "/v1/completions", body)["kv_transfer_params"]
    return transfer


def body_of(params: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": wire.ENGINE_MODEL, "prompt": PROMPT, "max_tokens": 20, "kv_transfer_params": params, **fields}


def resume(transfer: dict[str, Any], told: int, **more: Any) -> dict[str, Any]:
    output = TOKENS[: max(told, 1)]
    given: dict[str, Any] = {"logprobs": None, "created": 7, **more}
    return wire.resume_params(transfer, PROMPT, output, "acme/maths", told=told, **given)


def words_after(told: int) -> str:
    """The right text without that of the first tokens; the last token has none."""
    return "".join(f" {word}" for word in TEXT.split()[told:])


def raw_stream(engine: FakeEngine, body: dict[str, Any], path: str = "/v1/completions") -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=5)
    try:
        connection.request("POST", path, json.dumps({**body, "stream": True}))
        return connection.getresponse().read()
    finally:
        connection.close()


def stream(engine: FakeEngine, body: dict[str, Any], path: str = "/v1/completions") -> list[str]:
    """Data of every event."""
    lines = raw_stream(engine, body, path).decode().splitlines()
    return [line[6:] for line in lines if line.startswith("data: ")]


def text_of(events: list[str]) -> str:
    return "".join(json.loads(event)["choices"][0]["text"] for event in events if event != "[DONE]")


def refusal(engine: FakeEngine, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    with pytest.raises(urllib.error.HTTPError) as caught:
        engine.request("POST", path, body)
    with caught.value as error:
        return error.code, json.loads(error.read())["error"]


def test_each_event_that_tells_tokens_names_them_and_no_other_does(prefill: FakeEngine, decoder: FakeEngine) -> None:
    params = wire.decode_params(prefilled(prefill), PROMPT, TOKENS[:1], "acme/maths") | {wire.KEY_PROGRESS: True}
    events = raw_stream(decoder, body_of(params)).split(b"\n\n")[:-1]
    lines = [event.split(b"\n")[0] for event in events if event.startswith(wire.PROGRESS_PREFIX)]
    assert [token for line in lines for token in wire.Progress.from_line(line).token_ids] == TOKENS
    assert len(events) == len(lines) + 1
    assert events[-1] == b"data: [DONE]"


@pytest.mark.parametrize("told", [0, 1, 2, 15])
def test_a_resumed_stream_tells_only_what_comes_after(prefill: FakeEngine, decoder: FakeEngine, told: int) -> None:
    events = stream(decoder, body_of(resume(prefilled(prefill, resumed=True), told)))
    assert text_of(events) == words_after(told)
    assert {json.loads(event)["created"] for event in events[:-1]} == {7}
    assert events[-1] == "[DONE]"


def test_when_everything_was_told_only_the_end_is_left(prefill: FakeEngine, decoder: FakeEngine) -> None:
    options = {"stream_options": {"include_usage": True}}
    usage, done = stream(decoder, body_of(resume(prefilled(prefill, resumed=True), 16), **options))
    assert json.loads(usage)["usage"]["completion_tokens"] == 16
    assert done == "[DONE]"


def test_a_prefill_for_a_resume_hands_over_even_if_its_token_ends_the_text(prefill: FakeEngine) -> None:
    prefill.configure(answer_tokens=1)
    assert wire.missing_fields(prefilled(prefill, resumed=True)) == ()


def test_told_tokens_that_are_not_the_answers_spoil_the_rest(prefill: FakeEngine, decoder: FakeEngine) -> None:
    params = resume(prefilled(prefill, resumed=True), 2) | {wire.KEY_OUTPUT_TOKEN_IDS: [TOKENS[0], 5]}
    assert text_of(stream(decoder, body_of(params))) != words_after(2)


def test_only_all_or_nothing_can_have_been_told(prefill: FakeEngine, decoder: FakeEngine) -> None:
    params = resume(prefilled(prefill, resumed=True), 3) | {wire.KEY_TOLD_TOKENS: 2}
    assert refusal(decoder, "/v1/completions", body_of(params, stream=True))[0] == 400


def test_log_probabilities_need_a_row_for_each_token_so_far(prefill: FakeEngine, decoder: FakeEngine) -> None:
    transfer = prefilled(prefill, logprobs=1)
    rows = transfer[wire.KEY_OUTPUT_LOGPROBS]
    assert [row[0] for row in rows["token_ids"]] == TOKENS[:1]
    for given in ({name: part * 2 for name, part in rows.items()}, None):
        params = resume(transfer, 3, logprobs=given)
        status, error = refusal(decoder, "/v1/completions", body_of(params, stream=True, logprobs=1))
        assert (status, wire.KEY_OUTPUT_LOGPROBS in error["message"]) == (400, True)


def test_kv_that_is_released_is_free_and_cannot_be_read(prefill: FakeEngine, decoder: FakeEngine) -> None:
    transfer = prefilled(prefill)
    assert prefill.metric("fake:kv_blocks_used") == 1
    for held in (True, False):  # safe to repeat
        answer = prefill.request("POST", wire.RELEASE_PATH, {"kv_transfer_params": transfer})
        assert answer == {"released": held}
    assert (prefill.metric("fake:kv_blocks_used"), prefill.metric("fake:kv_releases_total")) == (0, 1)
    params = wire.decode_params(transfer, PROMPT, TOKENS[:1], "acme/maths")
    assert refusal(decoder, "/v1/completions", body_of(params))[1]["code"] == "sun_kv_load_failed"


def test_a_decoder_releases_nothing(decoder: FakeEngine) -> None:
    assert refusal(decoder, wire.RELEASE_PATH, {"kv_transfer_params": {}})[0] == 404


def test_dying_after_the_opening_tells_no_token(prefill: FakeEngine, decoder: FakeEngine) -> None:
    decoder.configure(die_after_opening=True, die="truncate")
    chat = {"model": wire.ENGINE_MODEL, "messages": [{"role": "user", "content": "one"}], "max_tokens": 20}
    leg = {**chat, "max_tokens": 1, "return_token_ids": True, "kv_transfer_params": wire.prefill_params(20)}
    answer = prefill.request("POST", "/v1/chat/completions", leg)
    output = answer["choices"][0]["token_ids"]
    params = wire.decode_params(answer["kv_transfer_params"], answer["prompt_token_ids"], output, "acme/maths")
    (event,) = stream(decoder, {**chat, "kv_transfer_params": params}, "/v1/chat/completions")
    assert json.loads(event)["choices"][0]["delta"] == {"role": "assistant", "content": ""}


def test_a_process_can_be_told_to_vanish() -> None:
    with FakeEngine("decode") as engine:
        with pytest.raises((OSError, http.client.HTTPException)):
            engine.request("POST", "/fake/exit")
        assert engine.wait() == 137
