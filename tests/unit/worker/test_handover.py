"""The hand-over as the decode side reads it."""

from __future__ import annotations

from typing import Any

import pytest

from sunfleet_api import wire
from sunfleet_worker.handover import (
    KEY_OUTPUT_LOGPROBS,
    missing_fields,
    response_model,
    seed_logprobs,
    seed_of,
)

TRANSFER: dict[str, Any] = {
    "remote_block_ids": [[1, 2]],
    "remote_engine_id": "e",
    "remote_request_id": "r",
    "remote_host": "10.0.0.1",
    "remote_port": 5600,
}


def complete(**changes: Any) -> dict[str, Any]:
    return {**wire.decode_params(TRANSFER, [1, 2, 3], [7], "acme/maths"), **changes}


def test_what_the_wire_makes_is_complete() -> None:
    assert missing_fields(complete()) == ()
    assert seed_of(complete()) == [7]
    assert response_model(complete()) == "acme/maths"


@pytest.mark.parametrize("field", [*wire.REQUIRED_TRANSFER_FIELDS, "do_remote_prefill", wire.KEY_OUTPUT_TOKEN_IDS])
def test_every_missing_field_is_named(field: str) -> None:
    params = complete()
    del params[field]
    assert missing_fields(params) == (field,)


@pytest.mark.parametrize("params", [None, {}])
def test_no_hand_over_lacks_everything(params: dict[str, Any] | None) -> None:
    assert len(missing_fields(params)) == len(wire.REQUIRED_TRANSFER_FIELDS) + 2


@pytest.mark.parametrize("seed", [[], "7", 7, [7.0], [True], [-1], [None], None])
def test_a_seed_that_is_no_list_of_token_ids_counts_as_missing(seed: object) -> None:
    assert missing_fields(complete(**{wire.KEY_OUTPUT_TOKEN_IDS: seed})) == (wire.KEY_OUTPUT_TOKEN_IDS,)


def rows(count: int) -> dict[str, Any]:
    return {"token_ids": [[7, 8]] * count, "logprobs": [[-0.1, -2.0]] * count, "ranks": [1] * count}


def test_log_probabilities_come_one_row_for_each_seed_token() -> None:
    found = seed_logprobs(complete(**{KEY_OUTPUT_LOGPROBS: rows(1)}))
    assert found is not None
    assert found.to_wire() == rows(1)


@pytest.mark.parametrize("given", [None, [], {}, rows(0), rows(2), {**rows(1), "ranks": []}])
def test_log_probabilities_that_do_not_fit_the_seed_count_as_none(given: object) -> None:
    assert seed_logprobs(complete(**{KEY_OUTPUT_LOGPROBS: given})) is None


@pytest.mark.parametrize("name", [None, "", 3])
def test_without_a_usable_name_the_answer_keeps_the_engines(name: object) -> None:
    assert response_model(complete(**{wire.KEY_RESPONSE_MODEL: name})) is None
