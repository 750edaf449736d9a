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
