"""Every request that is not served gets the right status, code and OpenAI error object, and reaches no decoder."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import aiohttp
import pytest

from sunfleet_router_harness import Engines, Router, RouterFactory, fleet_file

CHAT: dict[str, Any] = {"model": "acme/maths", "messages": [{"role": "user", "content": "hi"}]}
TEXT: dict[str, Any] = {"model": "acme/maths", "prompt": "one two three"}
STEERING = [
    "kv_transfer_params", "cache_salt", "request_id", "data_parallel_rank", "vllm_xargs", "lora_request",
    "mm_processor_kwargs", "return_tokens_as_token_ids", "ec_transfer_params", "prompt_embeds", "session_id",
    "mm_payload", "return_mm_kwargs", "routed_experts_prompt_start", "sun_output_token_ids", "sun_anything",
]  # fmt: skip

REFUSED: list[tuple[str, dict[str, Any], int, str, str | None]] = [
    ("/v1/chat/completions", {**CHAT, "model": "nobody"}, 404, "model_not_found", "model"),
    ("/v1/completions", {**TEXT, "model": None}, 400, "invalid_request", "model"),
    ("/v1/completions", {**TEXT, "model": 7}, 400, "invalid_request", "model"),
    ("/v1/completions", {**TEXT, "model": "asleep"}, 503, "no_prefill_endpoint", None),
    ("/v1/completions", {**TEXT, "model": "asleep", "max_tokens": 1}, 503, "no_prefill_endpoint", None),
    ("/v1/completions", {**TEXT, "model": "undecoded"}, 503, "no_decode_endpoint", None),
    ("/v1/completions", {**TEXT, "prompt": "word " * 3000}, 400, "context_length_exceeded", None),
    ("/v1/chat/completions", {**CHAT, "max_tokens": 5000}, 400, "context_length_exceeded", None),
    ("/v1/completions", {**TEXT, "prompt": None}, 400, "invalid_request", "prompt"),
    ("/v1/completions", {**TEXT, "prompt": []}, 400, "invalid_request", "prompt"),
    ("/v1/completions", {**TEXT, "prompt": {"a": 1}}, 400, "invalid_request", "prompt"),
    ("/v1/completions", {**TEXT, "prompt": [1, "a"]}, 400, "invalid_request", "prompt"),
    ("/v1/completions", {**TEXT, "prompt": [True, False]}, 400, "invalid_request", "prompt"),
    ("/v1/completions", {**TEXT, "prompt": [-1]}, 400, "invalid_request", "prompt"),
    ("/v1/completions", {**TEXT, "prompt": ["a", [1, "b"]]}, 400, "invalid_request", "prompt"),
    ("/v1/completions", {**TEXT, "prompt": [[1], []]}, 400, "invalid_request", "prompt"),
    ("/v1/completions", {**TEXT, "prompt": ["a"] * 257}, 400, "invalid_request", "prompt"),
    ("/v1/completions", {**TEXT, "prompt": ["a"] * 2, "n": 129}, 400, "invalid_request", "n"),
    ("/v1/completions", {**TEXT, "n": 0}, 400, "invalid_request", "n"),
    ("/v1/completions", {**TEXT, "n": 1.5}, 400, "invalid_request", "n"),
    ("/v1/completions", {**TEXT, "n": 2, "best_of": 3}, 400, "unsupported_parameter", "best_of"),
    ("/v1/completions", {**TEXT, "best_of": 2}, 400, "unsupported_parameter", "best_of"),
    ("/v1/completions", {**TEXT, "echo": True}, 400, "unsupported_parameter", "echo"),
    ("/v1/completions", {**TEXT, "prompt_logprobs": 0}, 400, "unsupported_parameter", "prompt_logprobs"),
    ("/v1/completions", {**TEXT, "use_beam_search": True}, 400, "unsupported_parameter", "use_beam_search"),
    ("/v1/completions", {**TEXT, "max_tokens": 0}, 400, "invalid_request", "max_tokens"),
    ("/v1/completions", {**TEXT, "max_tokens": "9"}, 400, "invalid_request", "max_tokens"),
    ("/v1/completions", {**TEXT, "max_tokens": True}, 400, "invalid_request", "max_tokens"),
    ("/v1/completions", {**TEXT, "max_tokens": 1.5}, 400, "invalid_request", "max_tokens"),
    ("/v1/chat/completions", {**CHAT, "max_completion_tokens": -1}, 400, "invalid_request", "max_completion_tokens"),
    ("/v1/completions", {**TEXT, "min_tokens": 9, "max_tokens": 3}, 400, "invalid_request", "min_tokens"),
    ("/v1/completions", {**TEXT, "stream": "yes"}, 400, "invalid_request", "stream"),
    ("/v1/completions", {**TEXT, "stream_options": {"include_usage": True}}, 400, "invalid_request", "stream_options"),
    ("/v1/completions", {**TEXT, "stream": True, "stream_options": 3}, 400, "invalid_request", "stream_options"),
    ("/v1/chat/completions", {**CHAT, "messages": []}, 400, "invalid_request", "messages"),
    ("/v1/chat/completions", {**CHAT, "messages": "hi"}, 400, "invalid_request", "messages"),
    ("/v1/chat/completions", {**CHAT, "messages": ["hi"]}, 400, "invalid_request", "messages"),
    *[("/v1/completions", {**TEXT, name: {"x": 1}}, 400, "invalid_request", name) for name in STEERING],
]  # fmt: skip


async def test_each_bad_request_is_told_what_is_wrong_and_no_decoder_works(router: Router, engines: Engines) -> None:
    for path, body, status, code, param in REFUSED:
        async with router.http.post(router.url + path, json=body) as answer:
            error = (await answer.json())["error"]
            told = (answer.status, error["code"], error["param"])
            assert told == (status, code, param or error["param"]), (body, error)
            assert error["message"]
            assert error["type"] in {"invalid_request_error", "server_error", "rate_limit_error"}
            assert ("retry-after" in answer.headers) == (status == 503), body
    assert not engines.decode_requests()
    legs = engines.prefill_requests() + engines.code.requests()
    assert all(leg["outcome"] == "refused" for leg in legs)  # only those whose length the engine judged


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'"x"', b"nan", b'{"model": NaN}', b"\xff\xfe", b"[" * 5000])
async def test_what_is_not_a_json_object_is_a_bad_request(router: Router, raw: bytes) -> None:
    async with router.http.post(router.url + "/v1/chat/completions", data=raw) as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (400, "invalid_json")


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_above_the_limit_is_413_and_one_at_it_is_served(
    start_router: RouterFactory, announced: bool
) -> None:
    router = await start_router(settings={"max_body_bytes": 64 << 10})

    async def chunks(body: bytes) -> Any:
        for at in range(0, len(body), 16 << 10):
            yield body[at : at + (16 << 10)]

    def payload(size: int) -> bytes:
        head, tail = b'{"model": "acme/maths", "max_tokens": 2, "prompt": "a', b'"}'
        return head + b"a" * (size - len(head) - len(tail)) + tail

    for size, status in ((64 << 10, 200), ((64 << 10) + 1, 413), (4 << 20, 413)):
        body = payload(size)
        data = io.BytesIO(body) if announced else chunks(body)
        async with router.http.post(router.url + "/v1/completions", data=data) as answer:
            assert answer.status == status
            if status == 413:
                assert (await answer.json())["error"]["code"] == "body_too_large"
    status, _ = await router.post("/v1/completions", {"model": "acme/maths", "prompt": "a"})
    assert status == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nope", 404),
        ("POST", "/v1/load_lora_adapter", 404),
        ("GET", "/metrics", 404),
        ("POST", "/reset_prefix_cache", 404),
        ("GET", "/sunfleet/info", 404),
        ("GET", "/v1/models/", 404),
        ("GET", "/v1/models/nobody", 404),
        ("POST", "/v1/completions/", 404),
        ("GET", "/v1/completions", 405),
        ("DELETE", "/v1/models", 405),
        ("GET", "/docs", 404),
        ("GET", "/v1/responses", 405),
        ("POST", "/v1/responses/resp_1", 404),
        ("POST", "/v1/chat/completions/batch", 404),
        ("POST", "/tokenizer_info", 404),
        ("POST", "/v1/embeddings", 404),
        ("POST", "/inference/v1/generate", 404),
        ("POST", "//v1/completions", 404),
        ("GET", "/fake/requests", 404),
    ],
)
async def test_other_paths_do_not_exist_and_are_never_forwarded(
    router: Router, engines: Engines, method: str, path: str, status: int
) -> None:
    async with router.http.request(method, router.url + path, data=b"{}" if method == "POST" else None) as answer:
        error = (await answer.json())["error"]
        assert (answer.status, error["type"]) == (status, "invalid_request_error")
    assert not engines.prefill_requests()


async def test_requests_beyond_a_tasks_limit_are_429_and_others_are_not_touched(
    start_router: RouterFactory, engines: Engines
) -> None:
    router = await start_router(maxInFlight=2)
    engines.configure_prefills(prefill_seconds=0.5)
    first = [asyncio.ensure_future(router.post("/v1/completions", TEXT)) for _ in range(2)]
    await asyncio.sleep(0.2)
    async with router.http.post(router.url + "/v1/completions", json=TEXT) as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (429, "too_many_in_flight")
        assert answer.headers["retry-after"] == "1"
    assert (await router.post("/v1/completions", {**TEXT, "model": "code"}))[0] == 200
    assert [status for status, _ in await asyncio.gather(*first)] == [200, 200]


async def test_before_the_fleet_is_known_nothing_is_unknown(start_router: RouterFactory) -> None:
    router = await start_router()
    router.parts.fleet.synced = False
    router.parts.fleet.snapshot = type(router.parts.fleet.snapshot)()
    for path in ("/readyz", "/v1/models", "/v1/models/acme/maths"):
        async with router.http.get(router.url + path) as answer:
            assert answer.status == 503
    status, answer_body = await router.post("/v1/completions", TEXT)
    assert (status, answer_body["error"]["code"]) == (503, "not_synced")
    async with router.http.get(router.url + "/livez") as answer:
        assert answer.status == 200


async def test_no_error_names_an_address(start_router: RouterFactory, engines: Engines) -> None:
    leak = "connect to http://10.1.2.3:8000/x failed, [fe80::1:2:3]:8000 and 10.9.8.7:5600 too"
    router = await start_router(settings={"attempts": 1})
    for status in (400, 500, 503):
        engines.configure_prefills(fail_status=status, fail_message=leak)
        _, body = await router.post("/v1/completions", TEXT)
        message = body["error"]["message"]
        assert "10." not in message
        assert "fe80" not in message
        assert "http:" not in message


async def test_a_pod_that_no_longer_listens_is_not_named(start_router: RouterFactory, engines: Engines) -> None:
    fleet = fleet_file(engines)
    for prefill in fleet["tasks"][0]["prefill"]:
        prefill["url"] = "http://127.0.0.1:9"
    router = await start_router(fleet=fleet)
    async with router.http.post(router.url + "/v1/completions", json=TEXT) as answer:
        text = await answer.text()
        assert answer.status == 503
    assert "127.0.0.1" not in text
    assert "engine_unreachable" in text
    assert isinstance(answer, aiohttp.ClientResponse)
