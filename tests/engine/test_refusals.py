"""What pods refuse, and how they say so: an OpenAI error with a status, never an answer from the wrong module."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.conftest import Task
from tests.engine.legs import Answer, chat, completion, metric, post

from sunfleet_api import wire
from support.engines import MAX_MODEL_LEN, Engine, get_json, get_status

PROMPT = list(range(100, 140))
MESSAGES = [{"role": "user", "content": "Hello."}]
GENERATED = "vllm:generation_tokens_total"


def refused(answer: Answer, code: str, status: int = 400) -> str:
    assert (answer.status, answer.error["code"]) == (status, code), answer.body
    assert set(answer.error) == {"message", "type", "param", "code"}
    message: str = answer.error["message"]
    return message


@pytest.mark.parametrize("field", [*wire.REQUIRED_TRANSFER_FIELDS, wire.KEY_OUTPUT_TOKEN_IDS, "do_remote_prefill"])
def test_a_hand_over_without_one_of_its_fields_is_refused(lora_task: Task, field: str) -> None:
    for path, body in (
        ("/v1/completions", completion(PROMPT, 4)),
        ("/v1/chat/completions", chat(MESSAGES, 4)),
    ):
        pair = lora_task.pair
        prefilled = pair.first_leg(path, body)
        answer = post(pair.decode, path, pair.second_leg(body, prefilled, **{field: None}))
        assert field in refused(answer, "handover_incomplete")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/completions", completion("Hello", 4)), ("/v1/chat/completions", chat(MESSAGES, 4))],
)
def test_a_decode_pod_never_answers_a_bare_request(
    engines: dict[str, Engine], path: str, body: dict[str, Any], stream: bool
) -> None:
    decode = engines["decode"]
    before = metric(decode, GENERATED)
    answer = post(decode, path, {**body, "model": wire.ENGINE_MODEL, "stream": stream, "cache_salt": "x"})
    refused(answer, "handover_incomplete")
    assert metric(decode, GENERATED) == before


@pytest.mark.parametrize("change", [{"max_tokens": 5}, {"kv_transfer_params": {}}, {"stream": True}], ids=str)
def test_a_prefill_pod_takes_only_prefill_legs(engines: dict[str, Engine], change: dict[str, Any]) -> None:
    leg = {
        **completion(PROMPT, 1),
        "model": wire.ENGINE_MODEL,
        "kv_transfer_params": wire.prefill_params(8),
        **change,
    }
    assert "prefill pod" in refused(post(engines["full"], "/v1/completions", leg), "handover_incomplete")


@pytest.mark.parametrize(
    ("prompt", "max_tokens"),
    [(MAX_MODEL_LEN, 1), (MAX_MODEL_LEN - 4, 5), (10, MAX_MODEL_LEN - 9), (3 * MAX_MODEL_LEN, None)],
)
def test_what_cannot_fit_is_refused_before_it_is_computed(task: Task, prompt: int, max_tokens: int | None) -> None:
    prefill = task.pair.prefill
    before = metric(prefill, "vllm:prompt_tokens_total")
    body = {**completion([100] * prompt, 1), "max_tokens": max_tokens}
    message = refused(task.pair.first_leg("/v1/completions", body), "context_length_exceeded")
    assert f"maximum context length is {MAX_MODEL_LEN} tokens" in message
    assert metric(prefill, "vllm:prompt_tokens_total") == before


def test_a_prompt_that_just_fits_is_answered(task: Task) -> None:
    answer = task.pair.complete([100] * (MAX_MODEL_LEN - 4), 4, ignore_eos=True)
    assert (len(answer.token_ids), answer.choice["finish_reason"]) == (4, "length")


@pytest.mark.parametrize(
    "parameter",
    [{"n": 2}, {"best_of": 2}, {"echo": True}, {"prompt_logprobs": 1}, {"use_beam_search": True}, {"suffix": "x"}],
    ids=str,
)
def test_parameters_that_one_pod_cannot_serve_exactly_are_refused(lora_task: Task, parameter: dict[str, Any]) -> None:
    pair, body = lora_task.pair, completion(PROMPT, 4)
    refused(pair.first_leg("/v1/completions", body | parameter), "unsupported_parameter")
    prefilled = pair.first_leg("/v1/completions", body)
    answer = post(pair.decode, "/v1/completions", pair.second_leg(body | parameter, prefilled))
    assert next(iter(parameter)) in refused(answer, "unsupported_parameter")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/responses", "/v1/messages", "/v1/chat/completions/batch", "/inference/v1/generate", "/generative_scoring",
        "/invocations", "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/collective_rpc", "/sleep", "/pause",
        "/reset_prefix_cache", "/abort_requests", "/update_weights", "/start_profile", "/scale_elastic_ep",
        "/v1/chat/completions/", "/v1//completions",
    ],
)  # fmt: skip
def test_other_routes_do_not_exist(engines: dict[str, Engine], path: str) -> None:
    for engine in (engines["decode"], engines["lora"]):
        refused(post(engine, path, {"model": wire.ENGINE_MODEL, "prompt": "Hello"}), "route_not_served", 404)


def test_reading_routes_work(engines: dict[str, Engine]) -> None:
    for engine in engines.values():
        for path in ("/health", "/metrics", "/v1/models", "/sunfleet/readyz", "/sunfleet/info"):
            assert get_status(engine.url + path) == 200, path
        for path in ("/docs", "/openapi.json", "/server_info", "/version", "/load", "/ping"):
            assert get_status(engine.url + path) == 404, path
    words = post(engines["lora"], "/tokenize", {"model": wire.ENGINE_MODEL, "prompt": "Hello"})
    assert words.body["count"] == len(words.body["tokens"]) > 0


def test_the_pod_says_what_the_router_must_know(engines: dict[str, Engine]) -> None:
    info = wire.EngineInfo.model_validate(get_json(engines["decode"].url + "/sunfleet/info"))
    assert (info.role, info.block_size, info.max_model_len) == ("decode", 32, MAX_MODEL_LEN)
    assert info.kv_capacity_tokens > MAX_MODEL_LEN
    assert (info.kv_fingerprint, info.engine_version) == ("test", "0.32.0")


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"model": "sunfleet"}'])
def test_a_wrong_body_is_an_error_object(engines: dict[str, Engine], body: bytes) -> None:
    answer = post(engines["decode"], "/v1/chat/completions", body)
    assert answer.status == 400
    assert answer.error["message"]


def test_an_unknown_model_is_not_found(engines: dict[str, Engine]) -> None:
    leg = {**completion(PROMPT, 1), "model": "other", "kv_transfer_params": wire.prefill_params(8)}
    assert post(engines["lora"], "/v1/completions", leg).status == 404
