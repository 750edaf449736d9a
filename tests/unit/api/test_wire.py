"""The hand-over: what each leg is given, and what must not be missing from a prefill's answer."""

from typing import Any

import pytest

from sunfleet_api import wire

COMPLETE: dict[str, Any] = {
    "remote_block_ids": [[1, 2]],
    "remote_engine_id": "engine",
    "remote_request_id": "request",
    "remote_host": "10.0.0.1",
    "remote_port": 5600,
    "tp_size": 1,
}


def test_a_complete_hand_over_misses_nothing() -> None:
    assert wire.missing_fields(COMPLETE) == ()


@pytest.mark.parametrize("name", wire.REQUIRED_TRANSFER_FIELDS)
@pytest.mark.parametrize("empty", [None, "", []])
def test_each_field_that_is_absent_or_empty_is_named(name: str, empty: Any) -> None:
    assert wire.missing_fields(COMPLETE | {name: empty}) == (name,)
    assert wire.missing_fields({key: value for key, value in COMPLETE.items() if key != name}) == (name,)


@pytest.mark.parametrize("nothing", [None, {}])
def test_no_hand_over_misses_everything(nothing: dict[str, Any] | None) -> None:
    assert wire.missing_fields(nothing) == wire.REQUIRED_TRANSFER_FIELDS


def test_the_prefill_leg_only_computes_the_prompt_and_knows_the_clients_limit() -> None:
    params = wire.prefill_params(7)
    assert params["do_remote_decode"]
    assert not params["do_remote_prefill"]
    assert params[wire.KEY_MAX_TOKENS] == 7


def test_the_decode_leg_gets_the_hand_over_the_tokens_and_the_name() -> None:
    params = wire.decode_params(COMPLETE | {"do_remote_decode": True}, (1, 2), (3,), "acme/maths")
    assert params["do_remote_prefill"]
    assert not params["do_remote_decode"]
    assert (params[wire.KEY_PROMPT_TOKEN_IDS], params[wire.KEY_OUTPUT_TOKEN_IDS]) == ([1, 2], [3])
    assert params[wire.KEY_RESPONSE_MODEL] == "acme/maths"
    assert wire.missing_fields(params) == ()
    assert params["tp_size"] == 1


LOGPROBS = {"token_ids": [[7, 9]], "logprobs": [[-0.5, -1.0]], "ranks": [1]}


@pytest.mark.parametrize("progress", [wire.Progress((7,)), wire.Progress((7, 8, 9)), wire.Progress((7,), LOGPROBS)])
def test_a_progress_line_comes_back_as_it_was_written(progress: wire.Progress) -> None:
    line = progress.to_line()
    assert line.startswith(b":"), "a client that sees it must take it for a comment"
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert wire.Progress.from_line(line) == progress


@pytest.mark.parametrize("line", [b"data: {}\n", b": sun 1,x\n", b": sun 1 [1]\n", b": sun 1 {\n"])
def test_another_line_is_no_progress(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        wire.Progress.from_line(line)


def test_a_resumed_leg_names_what_was_told() -> None:
    params = wire.resume_params(COMPLETE, (1, 2), (3, 4), "acme/maths", told=2, logprobs=None, created=17)
    told = {wire.KEY_PROGRESS: True, wire.KEY_TOLD_TOKENS: 2, wire.KEY_CREATED: 17}
    assert params == wire.decode_params(COMPLETE, (1, 2), (3, 4), "acme/maths") | told
