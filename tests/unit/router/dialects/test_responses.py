"""OpenAI's Responses API through both legs, with the real client: whole, streamed, tools, reasoning, broken off."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from sunfleet_fakes.harness import expected_text, tokenize
from sunfleet_router.bodies import legs
from sunfleet_router.dialects.responses.request import to_chat
from sunfleet_router.errors import InvalidRequestError
from sunfleet_router_harness import SALT, Engines, Router, RouterFactory
from sunfleet_router_streams import aimed_at, count, named_events

PATH = "/v1/responses"
QUESTION = "what is six times seven"
BODY: dict[str, Any] = {"model": "acme/maths", "input": QUESTION}
WEATHER: Any = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": None}

CUSTOM: Any = {"type": "custom", "name": "say", "description": "it"}


def right_text(instructions: str = "", limit: int = 64) -> str:
    system = f"<|system|> {instructions} " if instructions else ""
    ids = tokenize(f"{system}<|user|> {QUESTION} <|assistant|>")
    return expected_text("maths", "base", ids, answer_tokens=16, max_tokens=limit)


@pytest.fixture
async def client(router: Router) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=router.url + "/v1", api_key="none", max_retries=0) as one:
        yield one


async def raw_events(router: Router, body: dict[str, Any], request_id: str = "x") -> list[dict[str, Any]]:
    """Every event; their numbers must be in order."""
    events = await named_events(router, PATH, body, request_id)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def timeless(events: list[dict[str, Any]]) -> str:
    for event in events:
        event.get("response", {}).pop("created_at", None)
    return json.dumps(events)


async def test_a_response_is_the_tasks_prefill_and_the_shared_decoder(
    client: openai.AsyncOpenAI, engines: Engines
) -> None:
    response = await client.responses.create(model="acme/maths", input=QUESTION, instructions="Be brief", store=False)
    assert response.output_text == right_text("Be brief")
    assert (response.model, response.status, response.instructions) == ("acme/maths", "completed", "Be brief")
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (10, 16, 26)
    assert (len(engines.prefill_requests()), len(engines.decode_requests())) == (1, 1)


async def test_a_streamed_response_is_the_same_response(client: openai.AsyncOpenAI) -> None:
    whole = await client.responses.create(model="acme/maths", input=QUESTION, max_output_tokens=5)
    assert (whole.status, whole.incomplete_details and whole.incomplete_details.reason) == (
        "incomplete", "max_output_tokens",
    )  # fmt: skip
    async with client.responses.stream(model="acme/maths", input=QUESTION, max_output_tokens=5) as stream:
        pieces = [event.delta async for event in stream if event.type == "response.output_text.delta"]
        final = await stream.get_final_response()
    assert len(pieces) == 5
    assert "".join(pieces) == final.output_text == whole.output_text == right_text(limit=5)
    assert (final.status, final.usage) == (whole.status, whole.usage)


async def test_the_events_come_in_the_apis_order(router: Router) -> None:
    events = await raw_events(router, BODY, "mine")
    kinds = [event["type"].removeprefix("response.") for event in events]
    deltas = kinds.count("output_text.delta")
    assert kinds == [
        "created", "in_progress", "output_item.added", "content_part.added", *["output_text.delta"] * deltas,
        "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    response = events[-1]["response"]
    assert response["id"] == "resp_mine"
    assert response["output"] == [events[-2]["item"]]
    assert {event["item_id"] for event in events if "item_id" in event} == {response["output"][0]["id"]}


@pytest.mark.parametrize("stream", [False, True])
async def test_reasoning_and_a_call_are_items_of_their_own(router: Router, engines: Engines, stream: bool) -> None:
    engines.configure_decoders(reasoning_tokens=3, calls_tools=True)
    engines.configure_prefills(reasoning_tokens=3, calls_tools=True)
    body = {**BODY, "tools": [WEATHER]}
    if stream:
        events = await raw_events(router, body)
        response = events[-1]["response"]
        deltas = [event["delta"] for event in events if event["type"] == "response.function_call_arguments.delta"]
        assert "".join(deltas) == response["output"][1]["arguments"]
    else:
        _, response = await router.post(PATH, body)
    reasoning, call = response["output"]
    assert (reasoning["type"], call["type"], call["name"]) == ("reasoning", "function_call", "weather")
    assert reasoning["content"][0]["text"] + json.loads(call["arguments"])["said"] == right_text()
    assert (call["status"], response["status"]) == ("completed", "completed")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_custom_tool_is_called_with_plain_text_and_a_namespaces_by_its_own_name(
    router: Router, engines: Engines, stream: bool
) -> None:
    engines.configure_decoders(calls_tools=True)
    engines.configure_prefills(calls_tools=True)
    space = {"type": "namespace", "name": "sky", "tools": [WEATHER]}
    outputs = []
    for tool in (CUSTOM, space):
        body = {**BODY, "tools": [tool]}
        response = (await raw_events(router, body))[-1]["response"] if stream else (await router.post(PATH, body))[1]
        outputs.append(response["output"][0])
    custom, called = outputs
    assert (custom["type"], custom["name"]) == ("custom_tool_call", "say")
    assert json.loads(custom["input"]) == {"said": right_text()}  # not what was asked for, so as it came
    assert (called["type"], called["name"], called["namespace"]) == ("function_call", "weather", "sky")
    names = [leg["body"]["tools"][0]["function"]["name"] for leg in engines.decode_requests()]
    assert sorted(names) == ["say", "sky__weather"]  # either decode pod may have made either


async def test_log_probabilities_are_told_when_they_are_included(router: Router) -> None:
    body = {**BODY, "include": ["message.output_text.logprobs"], "top_logprobs": 2}
    whole = (await router.post(PATH, body))[1]["output"][0]["content"][0]
    streamed = (await raw_events(router, body))[-1]["response"]["output"][0]["content"][0]
    assert len(whole["logprobs"]) == 16
    assert [len(row["top_logprobs"]) for row in whole["logprobs"]] == [2] * 16
    assert streamed == whole


@pytest.mark.parametrize("tokens", [0, 1, 7, 15])
async def test_a_stream_that_breaks_off_goes_on_without_a_sign(router: Router, engines: Engines, tokens: int) -> None:
    unbroken = await raw_events(router, BODY, aimed_at(engines, engines.decode))
    engines.decode.configure(fail_after_tokens=tokens, requests=1)
    broken = await raw_events(router, BODY, aimed_at(engines, engines.decode))
    assert timeless(broken) == timeless(unbroken)
    if tokens:
        assert count(router, "resumed_streams", "acme/maths", "completed") == 1


async def test_a_stream_that_cannot_go_on_says_that_it_failed(start_router: RouterFactory, engines: Engines) -> None:
    router = await start_router(settings={"resume_limit": 0})
    engines.configure_decoders(fail_after_tokens=3)
    *_, error, failed = await raw_events(router, BODY)
    assert (error["type"], error["code"]) == ("error", "sun_fault")
    assert (failed["type"], failed["response"]["status"]) == ("response.failed", "failed")


async def test_an_answer_of_one_token_comes_from_the_prefill_alone(router: Router, engines: Engines) -> None:
    body = {**BODY, "max_output_tokens": 1}
    whole = (await router.post(PATH, body))[1]
    streamed = (await raw_events(router, body))[-1]["response"]
    for response in (whole, streamed):
        assert response["output"][0]["content"][0]["text"] == right_text(limit=1)
        assert (response["status"], response["usage"]["output_tokens"]) == ("incomplete", 1)
    assert not engines.decode_requests()


async def test_the_legs_are_those_of_a_chat(router: Router, engines: Engines) -> None:
    body = {
        **BODY, "temperature": 0.5, "top_p": 0.9, "seed": 3, "stop": ["x"], "max_output_tokens": 9, "user": "u",
        "tools": [WEATHER], "tool_choice": {"type": "function", "name": "weather"}, "parallel_tool_calls": False,
        "reasoning": {"effort": "low"}, "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}},
        "metadata": {"a": "b"}, "truncation": "disabled", "service_tier": "auto", "instructions": "Be brief",
    }  # fmt: skip
    await router.post(PATH, body)
    (leg,) = engines.decode_requests()
    assert leg["path"] == legs.PATHS["chat"]
    sent = {name: leg["body"][name] for name in leg["body"] if name not in {"kv_transfer_params", "model"}}
    assert sent == {
        "messages": [{"role": "system", "content": "Be brief"}, {"role": "user", "content": QUESTION}],
        "max_completion_tokens": 9, "temperature": 0.5, "top_p": 0.9, "seed": 3, "stop": ["x"], "user": "u",
        "cache_salt": SALT, "reasoning_effort": "low", "parallel_tool_calls": False,
        "tools": [{"type": "function", "function": {
            "name": "weather", "description": None, "parameters": {"type": "object"},
        }}],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
    }  # fmt: skip


def messages(*items: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = to_chat({"model": "m", "input": list(items)})["messages"]
    return found


def test_a_conversation_of_items_becomes_the_messages_that_it_was() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    custom = {"type": "custom_tool_call", "call_id": "d", "name": "say", "input": "hi"}
    assert messages(
        {"role": "developer", "content": "Be brief"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
        call,
        custom,
        {"type": "function_call_output", "call_id": "c", "output": "1"},
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:x"}]},
    ) == [
        {"role": "developer", "content": "Be brief"},
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "reasoning": "hm", "content": "b", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"id": "d", "type": "function", "function": {"name": "say", "arguments": '{"input": "hi"}'}},
        ]},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x", "detail": "auto"}}]},
    ]  # fmt: skip


def test_an_unfinished_last_message_is_continued() -> None:
    last = {"type": "message", "role": "assistant", "content": "Once", "status": "incomplete"}
    chat = to_chat({"model": "m", "input": [{"role": "user", "content": "a"}, last]})
    assert (chat["add_generation_prompt"], chat["continue_final_message"]) == (False, True)


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"previous_response_id": "resp_1"}, "unsupported_parameter", "previous_response_id"),
    ({"conversation": "conv_1"}, "unsupported_parameter", "conversation"),
    ({"store": True}, "unsupported_parameter", "store"),
    ({"background": True}, "unsupported_parameter", "background"),
    ({"prompt": {"id": "p"}}, "unsupported_parameter", "prompt"),
    ({"input": []}, "invalid_request", "input"),
    ({"input": None}, "invalid_request", "input"),
    ({"input": [7]}, "invalid_request", "input"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "unsupported_parameter", "input"),
    ({"input": [{"role": "robot", "content": "x"}]}, "invalid_request", "input.role"),
    ({"input": [{"type": "reasoning", "encrypted_content": "x"}]}, "unsupported_parameter", "input.encrypted_content"),
    ({"instructions": 7}, "invalid_request", "instructions"),
    ({"max_output_tokens": 0}, "invalid_request", "max_output_tokens"),
    ({"stream": 1}, "invalid_request", "stream"),
    ({"truncation": "some"}, "invalid_request", "truncation"),
    ({"include": "x"}, "invalid_request", "include"),
    ({"text": {"format": {"type": "xml"}}}, "invalid_request", "text.format.type"),
    ({"tools": [{"type": "web_search"}]}, "unsupported_parameter", "tools"),
    ({"tools": [{**CUSTOM, "format": {"type": "grammar"}}]}, "unsupported_parameter", "tools.format"),
    ({"tool_choice": "required"}, "invalid_request", "tool_choice"),
    ({"tool_choice": {"type": "function", "name": "nope"}}, "invalid_request", "tool_choice.name"),
    ({"kv_transfer_params": {}}, "invalid_request", "kv_transfer_params"),
]  # fmt: skip


async def test_what_cannot_be_answered_is_refused_by_name(router: Router, engines: Engines) -> None:
    for change, code, param in REFUSED:
        status, body = await router.post(PATH, {**BODY, **change})
        assert (status, body["error"]["code"], body["error"]["param"]) == (400, code, param), (change, body)
    assert not engines.prefill_requests()
    for path in ("/v1/responses/resp_1", "/v1/responses/resp_1/cancel"):
        async with router.http.post(router.url + path) as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (404, "path_not_found")


def test_null_and_empty_ask_for_nothing() -> None:
    nothing = dict.fromkeys(("store", "previous_response_id", "tools", "text", "reasoning", "include", "instructions"))
    assert to_chat({"model": "m", "input": "a", **nothing}) == to_chat({"model": "m", "input": "a"})


@pytest.mark.parametrize("bad", [{"input": "a", "tools": {}}, {"input": [{"type": "function_call"}]}, {"input": [{}]}])
def test_a_request_of_another_shape_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        to_chat({"model": "m", **bad})
