"""Anthropic's Messages API through both legs, with the real client: whole, streamed, tools, thinking, broken off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import anthropic
import orjson
import pytest

from sunfleet_fakes.harness import expected_text, tokenize
from sunfleet_router.dialects.messages import Messages
from sunfleet_router.dialects.translating import Translating
from sunfleet_router_harness import SALT, Engines, Router, RouterFactory, fleet_file
from sunfleet_router_streams import aimed_at, count, named_events, until

PATH = "/v1/messages"
QUESTION: list[Any] = [{"role": "user", "content": "what is six times seven"}]
BODY: dict[str, Any] = {"model": "acme/maths", "max_tokens": 64, "messages": QUESTION}
WEATHER: Any = {"name": "weather", "description": "of a city", "input_schema": {"properties": {"city": {}}}}


def right_text(system: str = "", answer: int = 16, limit: int = 64) -> str:
    prompt = f"<|system|> {system} " if system else ""
    ids = tokenize(f"{prompt}<|user|> {QUESTION[0]['content']} <|assistant|>")
    return expected_text("maths", "base", ids, answer_tokens=answer, max_tokens=limit)


def prompt_tokens(usage: anthropic.types.Usage) -> int:
    """What came from a cache is counted apart."""
    return usage.input_tokens + (usage.cache_read_input_tokens or 0)


@pytest.fixture
async def client(router: Router) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=router.url, api_key="none", max_retries=0) as one:
        yield one


async def test_a_message_is_the_tasks_prefill_and_the_shared_decoder(
    client: anthropic.AsyncAnthropic, engines: Engines
) -> None:
    message = await client.messages.create(model="acme/maths", max_tokens=64, messages=QUESTION, system="Be brief")
    (block,) = message.content
    assert block.type == "text"
    assert block.text == right_text("Be brief")
    assert (message.model, message.role, message.stop_reason) == ("acme/maths", "assistant", "end_turn")
    assert (prompt_tokens(message.usage), message.usage.output_tokens) == (10, 16)
    assert (len(engines.prefill_requests()), len(engines.decode_requests())) == (1, 1)


async def test_a_streamed_message_is_the_same_message(client: anthropic.AsyncAnthropic, engines: Engines) -> None:
    whole = await client.messages.create(model="acme/maths", max_tokens=5, messages=QUESTION)
    async with client.messages.stream(model="acme/maths", max_tokens=5, messages=QUESTION) as stream:
        pieces = [piece async for piece in stream.text_stream]
        final = await stream.get_final_message()
    assert len(pieces) == 5
    assert final.stop_reason == whole.stop_reason == "max_tokens"
    assert [block.model_dump() for block in final.content] == [block.model_dump() for block in whole.content]
    assert (prompt_tokens(final.usage), final.usage.output_tokens) == (7, 5)
    assert len(engines.prefill_requests()) == 2


async def test_the_events_come_in_anthropics_order(router: Router) -> None:
    events = await named_events(router, PATH, BODY, "mine")
    kinds = [event["type"] for event in events]
    deltas = kinds.count("content_block_delta")
    assert kinds == [
        "message_start", "content_block_start", *["content_block_delta"] * deltas, "content_block_stop",
        "message_delta", "message_stop",
    ]  # fmt: skip
    start = events[0]["message"]
    assert (start["id"], start["role"], start["content"], start["stop_reason"]) == ("msg_mine", "assistant", [], None)
    assert start["usage"]["input_tokens"] + start["usage"]["cache_read_input_tokens"] == 7
    assert events[-2]["usage"]["output_tokens"] == 16


@pytest.mark.parametrize("stream", [False, True])
async def test_thinking_text_and_a_call_are_blocks_of_their_own(
    client: anthropic.AsyncAnthropic, engines: Engines, stream: bool
) -> None:
    engines.configure_decoders(reasoning_tokens=3, calls_tools=True)
    engines.configure_prefills(reasoning_tokens=3, calls_tools=True)
    arguments: Any = {"model": "acme/maths", "max_tokens": 64, "messages": QUESTION, "tools": [WEATHER]}
    if stream:
        async with client.messages.stream(**arguments) as told:
            message = await told.get_final_message()
    else:
        message = await client.messages.create(**arguments)
    thinking, call = message.content
    assert thinking.type == "thinking"
    assert call.type == "tool_use"
    assert call.name == "weather"
    assert thinking.thinking + str(call.input["said"]) == right_text()
    assert thinking.signature
    assert message.stop_reason == "tool_use"


async def test_a_stop_sequence_is_named(router: Router, engines: Engines, client: anthropic.AsyncAnthropic) -> None:
    engines.configure_decoders(stop_reason="END")
    message = await client.messages.create(
        model="acme/maths", max_tokens=64, messages=QUESTION, stop_sequences=["END", "x"]
    )
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "END")
    assert engines.decode_requests()[0]["body"]["stop"] == ["END", "x"]
    events = await named_events(router, PATH, BODY)
    assert events[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "END"}


async def test_an_answer_of_one_token_comes_from_the_prefill_alone(router: Router, engines: Engines) -> None:
    status, message = await router.post(PATH, {**BODY, "max_tokens": 1})
    assert (status, message["stop_reason"], message["usage"]["output_tokens"]) == (200, "max_tokens", 1)
    events = await named_events(router, PATH, {**BODY, "max_tokens": 1})
    assert [event["type"] for event in events][-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert events[2]["delta"]["text"] == message["content"][0]["text"] == right_text(limit=1)
    assert not engines.decode_requests()


@pytest.mark.parametrize("tokens", [0, 1, 7, 15])
async def test_a_stream_that_breaks_off_goes_on_without_a_sign(router: Router, engines: Engines, tokens: int) -> None:
    unbroken = await named_events(router, PATH, BODY, aimed_at(engines, engines.decode))
    engines.decode.configure(fail_after_tokens=tokens, requests=1)
    broken = await named_events(router, PATH, BODY, aimed_at(engines, engines.decode))
    assert broken == unbroken
    if tokens:
        assert count(router, "resumed_streams", "acme/maths", "completed") == 1


async def test_a_stream_that_cannot_go_on_ends_with_anthropics_error(
    start_router: RouterFactory, engines: Engines
) -> None:
    router = await start_router(settings={"resume_limit": 0})
    engines.configure_decoders(fail_after_tokens=3)
    events = await named_events(router, PATH, BODY)
    assert events[-1]["type"] == "error"
    assert events[-1]["error"]["code"] == "sun_fault"
    assert "message_stop" not in [event["type"] for event in events]
    client = anthropic.AsyncAnthropic(base_url=router.url, api_key="none", max_retries=0)
    with pytest.raises(anthropic.APIStatusError):
        async with client.messages.stream(model="acme/maths", max_tokens=64, messages=QUESTION) as stream:
            await stream.get_final_message()
    await client.close()


async def test_a_client_that_leaves_ends_both_legs(router: Router, engines: Engines) -> None:
    engines.configure_decoders(tokens_per_second=5)
    async with router.http.post(router.url + PATH, json={**BODY, "stream": True}) as answer:
        await answer.content.readany()
        answer.close()
    await router.settled()
    await until(lambda: [leg["outcome"] for leg in engines.decode_requests()] == ["disconnected"])


async def test_the_legs_are_those_of_a_chat(router: Router, engines: Engines) -> None:
    body = {
        **BODY, "temperature": 0.5, "top_k": 3, "top_p": 0.9, "tools": [WEATHER], "metadata": {"user_id": "u"},
        "tool_choice": {"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
    }  # fmt: skip
    await router.post(PATH, body)
    (leg,) = engines.decode_requests()
    assert leg["path"] == "/v1/chat/completions"
    sent = leg["body"]
    assert {name: sent[name] for name in sent if name not in {"kv_transfer_params", "model"}} == {
        "messages": QUESTION, "max_completion_tokens": 64, "temperature": 0.5, "top_k": 3, "top_p": 0.9,
        "cache_salt": SALT, "reasoning_effort": "low", "parallel_tool_calls": False,
        "tools": [{"type": "function", "function": {
            "name": "weather", "description": "of a city",
            "parameters": {"type": "object", "properties": {"city": {}}},
        }}],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "response_format": {
            "type": "json_schema", "json_schema": {"name": "json_schema", "schema": {"type": "object"}},
        },
    }  # fmt: skip


async def test_tokens_are_counted_by_a_prefill_pod(client: anthropic.AsyncAnthropic, engines: Engines) -> None:
    counted = await client.messages.count_tokens(
        model="acme/maths", messages=QUESTION, system="Be brief", tools=[WEATHER], thinking={"type": "disabled"}
    )
    assert counted.input_tokens == 10
    (asked,) = engines.prefill_requests()
    assert asked["path"] == "/tokenize"
    assert asked["body"]["chat_template_kwargs"] == {"enable_thinking": False, "reasoning_effort": "none"}
    assert asked["body"]["tools"][0]["function"]["name"] == "weather"
    assert not engines.decode_requests()


REFUSED: list[tuple[dict[str, Any], int, str, str]] = [
    ({"model": "nobody"}, 404, "not_found_error", "model_not_found"),
    ({"model": "asleep"}, 503, "overloaded_error", "no_prefill_endpoint"),
    ({"max_tokens": None}, 400, "invalid_request_error", "invalid_request"),
    ({"max_tokens": 0}, 400, "invalid_request_error", "invalid_request"),
    ({"max_tokens": 99999}, 400, "invalid_request_error", "context_length_exceeded"),
    ({"messages": []}, 400, "invalid_request_error", "invalid_request"),
    ({"messages": [{"role": "tool", "content": "x"}]}, 400, "invalid_request_error", "invalid_request"),
    ({"messages": [{"role": "user", "content": 7}]}, 400, "invalid_request_error", "invalid_request"),
    ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, 400, "invalid_request_error", "invalid_request"),
    ({"system": 7}, 400, "invalid_request_error", "invalid_request"),
    ({"stream": "yes"}, 400, "invalid_request_error", "invalid_request"),
    ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, 400, "invalid_request_error", "unsupported_parameter"),
    ({"thinking": {"type": "deep"}}, 400, "invalid_request_error", "invalid_request"),
    ({"output_config": {"effort": "huge"}}, 400, "invalid_request_error", "invalid_request"),
    ({"tools": [{"type": "web_search_20250305", "name": "w"}]}, 400, "invalid_request_error", "unsupported_parameter"),
    ({"tool_choice": {"type": "some"}}, 400, "invalid_request_error", "invalid_request"),
    ({"mcp_servers": [{"url": "x"}]}, 400, "invalid_request_error", "unsupported_parameter"),
    ({"kv_transfer_params": {}}, 400, "invalid_request_error", "invalid_request"),
    ({"cache_salt": "x"}, 400, "invalid_request_error", "invalid_request"),
]


async def test_errors_have_anthropics_shape(router: Router, engines: Engines) -> None:
    for change, status, kind, code in REFUSED:
        told, body = await router.post(PATH, {**BODY, **change})
        assert (told, body["type"]) == (status, "error"), (change, body)
        assert (body["error"]["type"], body["error"]["code"]) == (kind, code), change
        assert body["error"]["message"]
    for method, path, status in (
        ("GET", "/v1/messages", 405),
        ("POST", "/v1/messages/", 404),
        ("POST", "/v1/messages/batches", 404),
        ("GET", "/v1/messages/x", 404),
    ):
        async with router.http.request(method, router.url + path) as answer:
            assert (answer.status, (await answer.json())["type"]) == (status, "error")
    async with router.http.post(router.url + PATH, data=b"{") as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (400, "invalid_json")
    assert not engines.decode_requests()


async def test_the_anthropic_client_raises_its_own_errors(client: anthropic.AsyncAnthropic) -> None:
    with pytest.raises(anthropic.NotFoundError):
        await client.messages.create(model="nobody", max_tokens=5, messages=QUESTION)
    with pytest.raises(anthropic.BadRequestError):
        await client.messages.create(model="acme/maths", max_tokens=5, messages=[])


async def test_keys_are_asked_for_and_limit_models_in_anthropics_words_too(
    start_router: RouterFactory, engines: Engines
) -> None:
    keys = [{"name": "alice", "sha256": sha256(b"right").hexdigest(), "tasks": "code"}]
    router = await start_router(fleet={**fleet_file(engines), "keys": keys}, settings={"authentication": "keys"})
    for key, model, error in (
        ("wrong", "code", anthropic.AuthenticationError),
        ("right", "acme/maths", anthropic.NotFoundError),
    ):
        async with anthropic.AsyncAnthropic(base_url=router.url, api_key=key, max_retries=0) as client:
            with pytest.raises(error):
                await client.messages.create(model=model, max_tokens=5, messages=QUESTION)
            with pytest.raises(error):
                await client.messages.count_tokens(model=model, messages=QUESTION)
    for path, field in (("/tokenize", "prompt"), ("/v1/responses", "input")):
        body = {"model": "acme/maths", field: "a"}
        assert (await router.post(path, body))[0] == 401
        assert (await router.post(path, body, authorization="Bearer right"))[0] == 404
    async with anthropic.AsyncAnthropic(base_url=router.url, api_key="right", max_retries=0) as client:
        assert (await client.messages.create(model="code", max_tokens=5, messages=QUESTION)).usage.output_tokens == 5


@pytest.mark.parametrize("arguments", ['"Rome"', "[1]", "7", "null"])
async def test_a_call_whose_arguments_are_no_object_is_an_error_and_no_odd_message(arguments: str) -> None:
    """The official clients declare ``input`` an object; the answer is right, so it is not made again."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    translating = Translating(send, Messages())
    translating.read(orjson.dumps(BODY), "1")
    call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    answer = {"choices": [{"message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    await translating({"type": "http.response.start", "status": 200, "headers": []})
    await translating({"type": "http.response.body", "body": orjson.dumps(answer)})
    told = orjson.loads(sent[1]["body"])
    assert sent[0]["status"] == 502
    assert (told["type"], told["error"]["type"], told["error"]["code"]) == ("error", "api_error", "unsayable_answer")
    assert "'weather'" in told["error"]["message"]
