"""What pods refuse before the engine sees it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.worker.test_handover import complete, rows

from sunfleet_api import wire
from sunfleet_worker.errors import RefusedError
from sunfleet_worker.frontend.checks import check_decode_request, check_fits, check_prefill_request
from sunfleet_worker.handover import KEY_OUTPUT_LOGPROBS

PLAIN: dict[str, Any] = {
    "n": 1,
    "stream": False,
    "max_tokens": 8,
    "min_tokens": 0,
    "use_beam_search": False,
    "echo": False,
    "prompt_logprobs": None,
    "logprobs": None,
    "top_logprobs": 0,
    "model_extra": {},
    "cache_salt": "salt",
    "prompt": "Hello",
}


def decode(**changes: Any) -> SimpleNamespace:
    return SimpleNamespace(**{**PLAIN, "kv_transfer_params": complete(), **changes})


def prefill(**changes: Any) -> SimpleNamespace:
    return SimpleNamespace(**{**PLAIN, "max_tokens": 1, "kv_transfer_params": wire.prefill_params(8), **changes})


def test_complete_legs_pass() -> None:
    check_decode_request(decode())
    check_prefill_request(prefill())


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"kv_transfer_params": None}, "remote_block_ids"),
        ({"kv_transfer_params": complete(prompt_token_ids=[])}, "prompt_token_ids"),
        ({"cache_salt": None}, "cache_salt"),
        ({"logprobs": True}, "logprobs"),
        ({"logprobs": 0}, "logprobs"),
    ],
)
def test_a_decode_leg_that_lacks_something_says_what(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(RefusedError, match=named) as refusal:
        check_decode_request(decode(**changes))
    assert refusal.value.code == "handover_incomplete"


def test_log_probabilities_pass_with_the_prefills_share() -> None:
    check_decode_request(decode(logprobs=2, kv_transfer_params=complete(**{KEY_OUTPUT_LOGPROBS: rows(1)})))
    check_decode_request(decode(logprobs=False))


@pytest.mark.parametrize("told", [0, 1])
def test_a_resume_passes_that_has_told_all_or_nothing(told: int) -> None:
    check_decode_request(decode(stream=True, kv_transfer_params=complete(**{wire.KEY_TOLD_TOKENS: told})))


@pytest.mark.parametrize(
    ("told", "stream"), [(2, True), (-1, True), (None, True), ("1", True), (True, True), (1, False)]
)
def test_a_resume_that_does_not_fit_its_tokens_is_refused(told: object, stream: bool) -> None:
    leg = decode(stream=stream, kv_transfer_params=complete(**{wire.KEY_TOLD_TOKENS: told}))
    with pytest.raises(RefusedError, match=wire.KEY_TOLD_TOKENS) as refusal:
        check_decode_request(leg)
    assert refusal.value.code == "handover_incomplete"


@pytest.mark.parametrize(
    "parameter",
    [
        {"n": 2},
        {"use_beam_search": True},
        {"echo": True},
        {"prompt_logprobs": 0},
        {"model_extra": {"best_of": 2}},
        {"suffix": "x"},
        {"prompt_embeds": b"x"},
        {"logprob_token_ids": [1]},
        {"thinking_token_budget": 0},
        {"prompt": ["one", "two"]},
        {"prompt": [[1], [2]]},
    ],
    ids=str,
)
def test_parameters_that_one_pod_cannot_serve_exactly_are_refused_on_both_legs(parameter: dict[str, Any]) -> None:
    name = next(iter(parameter.get("model_extra", parameter)))
    for check, leg in ((check_decode_request, decode), (check_prefill_request, prefill)):
        with pytest.raises(RefusedError) as refusal:
            check(leg(**parameter))
        assert (refusal.value.code, refusal.value.param) == ("unsupported_parameter", name)


@pytest.mark.parametrize(
    "changes",
    [
        {"kv_transfer_params": None},
        {"max_tokens": 2},
        {"max_tokens": None},
        {"max_completion_tokens": 2},
        {"stream": True},
    ],
    ids=str,
)
def test_a_prefill_pod_takes_prefill_legs_only(changes: dict[str, Any]) -> None:
    with pytest.raises(RefusedError, match="prefill pod"):
        check_prefill_request(prefill(**changes))


def test_a_request_for_one_token_needs_no_hand_over() -> None:
    check_prefill_request(prefill(kv_transfer_params=wire.prefill_params(1)))


@pytest.mark.parametrize(("given", "kept"), [(0, 0), (1, 1), (7, 1), (None, 0)])
def test_min_tokens_is_cut_to_the_prefills_one_token(given: int | None, kept: int) -> None:
    request = prefill(min_tokens=given)
    check_prefill_request(request)
    assert request.min_tokens == kept


def test_the_token_of_a_resumed_prefill_does_not_count_as_an_end() -> None:
    ends = {"ignore_eos": False, "stop": ["x"], "stop_token_ids": [3]}
    request = prefill(kv_transfer_params=wire.prefill_params(8, resumed=True), **ends)
    check_prefill_request(request)
    assert (request.ignore_eos, request.stop, request.stop_token_ids) == (True, [], [])
    request = prefill(**ends)
    check_prefill_request(request)
    assert (request.ignore_eos, request.stop, request.stop_token_ids) == (False, ["x"], [3])


@pytest.mark.parametrize(("prompt", "max_tokens"), [(90, 10), (99, 1), (99, None)])
def test_what_just_fits_passes(prompt: int, max_tokens: int | None) -> None:
    check_fits(prompt, prefill(kv_transfer_params=wire.prefill_params(max_tokens)), 100)


@pytest.mark.parametrize(("prompt", "max_tokens"), [(91, 10), (100, 1), (100, None), (1, 100)])
def test_what_does_not_fit_is_refused_with_the_numbers(prompt: int, max_tokens: int | None) -> None:
    with pytest.raises(RefusedError, match=f"length is 100 tokens.*{prompt} input tokens") as refusal:
        check_fits(prompt, prefill(kv_transfer_params=wire.prefill_params(max_tokens)), 100)
    assert refusal.value.code == "context_length_exceeded"
