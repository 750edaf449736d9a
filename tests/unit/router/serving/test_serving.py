"""Answers through both legs: right tokens, right shapes, nothing more than the contract sends."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import openai
import pytest

from sunfleet_api import wire
from sunfleet_fakes.harness import expected_text, tokenize
from sunfleet_router.surface import openapi
from sunfleet_router_harness import SALT, Engines, Router, RouterFactory, fleet_file

PROMPT = "what is six times seven"
CHAT = {"model": "acme/maths", "messages": [{"role": "user", "content": PROMPT}]}
COMPLETION = {"model": "acme/maths", "prompt": PROMPT}


def right_text(task: str = "maths", prompt: str = PROMPT, answer: int = 16, limit: int = 16) -> str:
    return expected_text(task, "base", tokenize(prompt), answer_tokens=answer, max_tokens=limit)


def events(stream: str) -> list[Any]:
    assert stream.endswith("data: [DONE]\n\n"), stream[-200:]
    lines = [line.removeprefix("data: ") for line in stream.split("\n\n") if line]
    return [json.loads(line) for line in lines[:-1]]


def streamed_text(stream: str) -> str:
    choices = [choice for event in events(stream) for choice in event["choices"]]
    return "".join(choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices)


@pytest.mark.parametrize("task", ["acme/maths", "code"])
async def test_a_completion_is_the_tasks_prefill_and_the_shared_decoder(router: Router, task: str) -> None:
    status, answer = await router.post("/v1/completions", {"model": task, "prompt": PROMPT})
    assert status == 200
    assert answer["choices"][0]["text"] == right_text(task.removeprefix("acme/"))
    assert answer["model"] == task
    assert answer["usage"]["completion_tokens"] == 16


async def test_a_streamed_completion_has_the_same_text_and_the_usage_that_was_asked_for(router: Router) -> None:
    body = {**COMPLETION, "stream_options": {"include_usage": True}}
    stream = await router.stream("/v1/completions", body)
    assert streamed_text(stream) == right_text()
    assert events(stream)[-1]["usage"]["total_tokens"] == len(tokenize(PROMPT)) + 16


async def test_a_prompt_of_token_ids_and_a_batch_of_one_are_the_same_prompt(router: Router) -> None:
    for prompt in (tokenize(PROMPT), [tokenize(PROMPT)], [PROMPT]):
        _, answer = await router.post("/v1/completions", {**COMPLETION, "prompt": prompt})
        assert answer["choices"][0]["text"] == right_text()


async def test_chats_are_answered_through_the_openai_client(router: Router) -> None:
    client = openai.AsyncOpenAI(base_url=router.url + "/v1", api_key="none", max_retries=0)
    messages: Any = CHAT["messages"]
    whole = await client.chat.completions.create(model="acme/maths", messages=messages, max_tokens=5)
    stream = await client.chat.completions.create(model="acme/maths", messages=messages, max_tokens=5, stream=True)
    pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(pieces) == whole.choices[0].message.content
    assert whole.model == "acme/maths"
    assert [model.id async for model in client.models.list()] == ["acme/maths", "asleep", "code", "undecoded"]
    assert (await client.models.retrieve("acme/maths")).id == "acme/maths"
    await client.close()


async def test_every_optional_field_may_be_missing_or_null(router: Router) -> None:
    nothing = dict.fromkeys(
        ("max_tokens", "max_completion_tokens", "n", "stream", "stream_options", "min_tokens", "stop")
    )
    for body in (CHAT, {**CHAT, **nothing}, {**CHAT, "kv_transfer_params": None, "cache_salt": None}):
        status, answer = await router.post("/v1/chat/completions", body)
        assert status == 200, answer


async def test_the_prefill_leg_is_one_token_whatever_the_client_asked_for(router: Router, engines: Engines) -> None:
    body = {
        **CHAT, "stream": True, "stream_options": {"include_usage": True}, "max_completion_tokens": 7, "max_tokens": 9,
        "min_tokens": 5, "temperature": 0.5, "stop": ["x"], "seed": 3,
    }  # fmt: skip
    await router.stream("/v1/chat/completions", body)
    (leg,) = engines.prefill_requests()
    sent = leg["body"]
    assert sent["max_tokens"] == 1
    assert sent["stream"] is False
    assert sent["min_tokens"] == 1
    assert not {"max_completion_tokens", "stream_options"} & sent.keys()
    assert sent["model"] == wire.ENGINE_MODEL
    assert sent["cache_salt"] == SALT
    assert sent["return_token_ids"] is True
    assert sent["kv_transfer_params"] == wire.prefill_params(7)
    assert (sent["temperature"], sent["stop"], sent["seed"]) == (0.5, ["x"], 3)


async def test_a_long_prompt_reaches_the_prefill_pod_as_it_came(router: Router, engines: Engines) -> None:
    prompt = ('"größer"\\' * 100 + "\n") * 12
    parts = [{"type": "text", "text": prompt}, {"type": "text", "text": "and then?"}]
    messages = [{"role": "system", "content": prompt}, {"role": "user", "content": parts}]
    assert (await router.post("/v1/completions", {**COMPLETION, "prompt": prompt}))[0] == 200
    assert (await router.post("/v1/chat/completions", {**CHAT, "messages": messages}))[0] == 200
    sent = {leg["body"].get("prompt", "chat"): leg["body"] for leg in engines.prefill_requests()}
    assert sent.keys() == {prompt, "chat"}
    assert sent["chat"]["messages"] == messages


async def test_the_decode_leg_is_the_clients_request_with_the_hand_over(router: Router, engines: Engines) -> None:
    body = {**COMPLETION, "max_tokens": 6, "min_tokens": 2, "temperature": 0.5, "logit_bias": {"7": -1.5}}
    await router.stream("/v1/completions", {**body, "stream_options": {"include_usage": True}})
    (leg,) = engines.decode_requests()
    sent = leg["body"]
    transfer = sent.pop("kv_transfer_params")
    assert wire.missing_fields(transfer) == ()
    assert transfer[wire.KEY_PROMPT_TOKEN_IDS] == tokenize(PROMPT)
    assert len(transfer[wire.KEY_OUTPUT_TOKEN_IDS]) == 1
    assert transfer[wire.KEY_RESPONSE_MODEL] == "acme/maths"
    assert (transfer["do_remote_prefill"], transfer["do_remote_decode"]) == (True, False)
    ours = {"model": wire.ENGINE_MODEL, "cache_salt": SALT, "prompt": tokenize(PROMPT)}
    assert sent == {**body, "stream": True, "stream_options": {"include_usage": True}, **ours}


async def test_engines_get_the_request_id_and_the_trace_and_no_other_header(router: Router, engines: Engines) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = {
        "X-Request-Id": "mine-1", "traceparent": trace, "Authorization": "Bearer secret", "X-Data-Parallel-Rank": "3",
        "X-Session-ID": "s", "X-Vllm-Priority": "-9", "X-Sunfleet-Role": "decode", "Cookie": "c=1", "X-Other": "y",
    }  # fmt: skip
    async with router.http.post(router.url + "/v1/completions", json=COMPLETION, headers=headers) as answer:
        assert answer.status == 200
        assert answer.headers["x-request-id"] == "mine-1"
    for leg in engines.prefill_requests() + engines.decode_requests():
        assert leg["headers"]["x-request-id"] == "mine-1"
        assert leg["headers"]["traceparent"] == trace
        assert leg["headers"].keys() == {"host", "content-type", "content-length", "x-request-id", "traceparent"}


@pytest.mark.parametrize("given", ["", "bad id", "a" * 129, "line\tbreak", "é"])
async def test_a_request_id_that_is_not_plain_is_replaced(router: Router, given: str) -> None:
    async with router.http.post(
        router.url + "/v1/completions", json=COMPLETION, headers={"x-request-id": given}
    ) as answer:
        assert len(answer.headers["x-request-id"]) == 32


async def test_the_pods_of_both_legs_are_named_only_when_asked_for(start_router: RouterFactory) -> None:
    for wanted in (True, False):
        router = await start_router(settings={"pod_headers": wanted})
        async with router.http.post(router.url + "/v1/completions", json=COMPLETION) as answer:
            named = (answer.headers.get("x-sunfleet-prefill-pod"), answer.headers.get("x-sunfleet-decode-pod"))
        assert (None not in named) == wanted


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("reason", ["one token wanted", "first token ends it"])
async def test_an_answer_of_one_token_comes_from_the_prefill_alone(
    router: Router, engines: Engines, path: str, reason: str
) -> None:
    body: dict[str, Any] = CHAT if "chat" in path else COMPLETION
    if reason == "one token wanted":
        body, finish, count = {**body, "max_tokens": 1}, "length", 1
        text = right_text(limit=1) if "chat" not in path else None
    else:
        engines.configure_prefills(answer_tokens=1)
        finish, count, text = "stop", 1, ""
    status, whole = await router.post(path, body)
    assert status == 200
    choice = whole["choices"][0]
    message = choice.get("text", choice.get("message", {}).get("content"))
    stream = await router.stream(path, {**body, "stream_options": {"include_usage": True}})
    chunks = events(stream)
    assert choice["finish_reason"] == finish
    assert whole["usage"]["completion_tokens"] == count
    assert text is None or message == text
    assert streamed_text(stream) == message
    assert [one["choices"][0]["finish_reason"] for one in chunks if one["choices"]][-1] == finish
    assert (chunks[-1]["choices"], chunks[-1]["usage"]["completion_tokens"]) == ([], count)
    assert {whole["model"], *(chunk["model"] for chunk in chunks)} == {"acme/maths"}
    assert not {"kv_transfer_params", "prompt_token_ids"} & whole.keys()
    assert "token_ids" not in choice
    assert not engines.decode_requests()


async def test_no_kv_is_held_for_an_answer_of_one_token(router: Router, engines: Engines) -> None:
    await router.post("/v1/completions", {**COMPLETION, "max_tokens": 1})
    (leg,) = engines.prefill_requests()
    assert leg["body"]["kv_transfer_params"]["do_remote_decode"] is False
    assert sum(engine.metric("vllm:kv_cache_usage_perc") for engine in (engines.maths, engines.maths_too)) == 0


async def test_tokens_reach_the_client_at_the_engines_pace(router: Router, engines: Engines) -> None:
    engines.configure_decoders(tokens_per_second=20, answer_tokens=10)
    loop = asyncio.get_running_loop()
    async with router.http.post(router.url + "/v1/completions", json={**COMPLETION, "stream": True}) as answer:
        times = [loop.time() async for _ in answer.content.iter_any()]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(times) >= 8
    assert max(gaps) < 0.2


async def test_a_tasks_defaults_fill_only_what_the_client_left_out(
    start_router: RouterFactory, engines: Engines
) -> None:
    fleet = fleet_file(engines)
    fleet["tasks"][0]["defaults"] = {"temperature": "0.7", "maxTokens": 4, "topK": 3}
    router = await start_router(fleet=fleet)
    status, answer = await router.post("/v1/completions", {**COMPLETION, "temperature": 0.1})
    assert (status, answer["usage"]["completion_tokens"]) == (200, 4)
    sent = engines.decode_requests()[0]["body"]
    assert (sent["temperature"], sent["top_k"], sent["max_tokens"]) == (0.1, 3, 4)


async def test_many_requests_of_both_tasks_are_each_exact_and_share_the_pool(router: Router, engines: Engines) -> None:
    engines.configure_decoders(tokens_per_second=200)

    async def ask(number: int) -> None:
        task, prompt = ("acme/maths", "code")[number % 2], f"question {number} of many"
        path, body = "/v1/completions", {"model": task, "prompt": prompt, "max_tokens": 16}
        if number % 3:
            text = streamed_text(await router.stream(path, body))
        else:
            text = (await router.post(path, body))[1]["choices"][0]["text"]
        assert text == right_text(task.removeprefix("acme/"), prompt)

    await asyncio.gather(*(ask(number) for number in range(60)))
    assert engines.decode.requests()
    assert engines.decode_too.requests()
    assert sum(engine.prompt_tokens("local_compute") for engine in (engines.decode, engines.decode_too)) == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_every_path_that_makes_tokens_prefills_exactly_once_and_decodes_elsewhere(
    router: Router, engines: Engines, stream: bool
) -> None:
    least: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": CHAT,
        "/v1/completions": COMPLETION,
        "/v1/responses": {"model": "acme/maths", "input": PROMPT},
        "/v1/messages": {**CHAT, "max_tokens": 16},
    }
    aside = {"/v1/messages/count_tokens", "/tokenize", "/detokenize"}
    assert least.keys() | aside == {path for path, methods in openapi.document()["paths"].items() if "post" in methods}
    for number, (path, body) in enumerate(least.items(), 1):
        async with router.http.post(router.url + path, json={**body, "stream": stream}) as answer:
            assert answer.status == 200, await answer.text()
            await answer.read()
        assert (len(engines.prefill_requests()), len(engines.decode_requests())) == (number, number), path
    assert sum(engine.prompt_tokens("local_compute") for engine in (engines.decode, engines.decode_too)) == 0
