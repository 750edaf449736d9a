"""Several answers to one request, Responses and Messages: as the stock server answers them. Contract line 7."""

from __future__ import annotations

from typing import Any

import pytest

from support.apis import Json, Said, of_message, of_response, post
from support.judge import FULL, SIXTEEN_BIT, Judge
from support.shapes import of_stream, of_whole
from support.stock import TASK, Servers

LINE = "7 other APIs, against a stock server"
QUESTION = "Name three colours and say one sentence about each."
PROMPTS = ["Once upon a time there was", "The capital of France is", "Six times seven is"]
IDS = [[504, 253, 1838, 4279, 314], [260, 2530, 28, 253]]
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 120}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
MODES = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def both(servers: Servers, path: str, body: Json) -> tuple[Said, Said]:
    """(ours, the stock server's)."""
    ours, stock = post(servers.sunfleet_url, path, body), post(servers.stock_url, path, body)
    assert stock.status == 200, stock.body
    assert ours.status == 200, ours.body
    return ours, stock


def judged(judge: Judge, ours: Any, stock: Any) -> None:
    row = judge.table.row(LINE, SIXTEEN_BIT, FULL)
    row.requests += 1
    row.mismatches += 1
    assert ours == stock
    row.mismatches -= 1


def shaped(said: Said) -> Json:
    return of_stream(said.events) if said.events else of_whole(said.body)


BATCHES: dict[str, Json] = {
    "texts": {"prompt": PROMPTS},
    "token ids": {"prompt": IDS},
    "log-probabilities": {"prompt": PROMPTS, "logprobs": 2},
    "stop strings": {"prompt": PROMPTS, "stop": [".", ","]},
    "one token each": {"prompt": PROMPTS, "max_tokens": 1},
    "shown token ids": {"prompt": PROMPTS, "return_token_ids": True},
}


@MODES
@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_is_the_stock_servers(servers: Servers, judge: Judge, name: str, stream: bool) -> None:
    options: Json = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    body = {"model": TASK, "max_tokens": 24, "temperature": 0, **BATCHES[name], **options}
    ours, stock = both(servers, "/v1/completions", body)
    judged(judge, shaped(ours), shaped(stock))


@MODES
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_greedy_answers_are_each_the_stock_servers_one(servers: Servers, judge: Judge, path: str, stream: bool) -> None:
    """The stock server refuses ``n`` above 1 with greedy sampling, so it is asked for one."""
    prompt = (
        {"prompt": PROMPTS[0]} if path == "/v1/completions" else {"messages": [{"role": "user", "content": QUESTION}]}
    )
    body: Json = {"model": TASK, "max_tokens": 24, "temperature": 0, **prompt, "return_token_ids": True}
    stock = of_whole(post(servers.stock_url, path, body).body)["choices"][0]
    ours = shaped(post(servers.sunfleet_url, path, {**body, "n": 3, "stream": stream}))
    for index, choice in enumerate(ours["choices"]):
        judged(judge, {**choice, "index": 0}, {**stock, "index": 0})
        assert choice.get("index", 0) == index


def test_each_sampled_answer_is_the_one_that_its_seed_gives_alone(servers: Servers, judge: Judge) -> None:
    body: Json = {"model": TASK, "prompt": PROMPTS[0], "max_tokens": 24, "temperature": 0.9, "top_p": 0.95}
    several = post(servers.sunfleet_url, "/v1/completions", {**body, "n": 3, "seed": 11}).body["choices"]
    assert len({choice["text"] for choice in several}) > 1
    for number, choice in enumerate(several):
        alone = post(servers.sunfleet_url, "/v1/completions", {**body, "seed": 11 + number}).body["choices"][0]
        judged(judge, choice["text"], alone["text"])


CONVERSATION = [
    {"role": "user", "content": "What is the capital of France?"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Paris.", "annotations": []}]},
    {"role": "user", "content": [{"type": "input_text", "text": "And of Italy?"}]},
]
CALLED = [
    {"role": "user", "content": "What is the weather in Rome?"},
    {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": '{"city": "Rome"}'},
    {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
]
FUNCTION = {"type": "function", "name": "get_weather", "description": "The weather", "parameters": CITY, "strict": None}
RESPONSES: dict[str, Json] = {
    "plain": {},
    "instructions": {"instructions": "You answer briefly."},
    "one token": {"max_output_tokens": 1},
    "conversation": {"input": CONVERSATION},
    "after a call": {"input": CALLED, "tools": [FUNCTION]},
    "log-probabilities": {"include": ["message.output_text.logprobs"], "top_logprobs": 3},
    "stop string": {"stop": [" the"]},
    "penalties": {"presence_penalty": 1.0, "frequency_penalty": 0.5},
    "JSON schema": {"text": {"format": {"type": "json_schema", "name": "person", "schema": PERSON, "strict": True}}},
    "tools offered": {"tools": [FUNCTION]},
    "a tool required": {"tools": [FUNCTION], "tool_choice": "required"},
    "a tool named": {"tools": [FUNCTION], "tool_choice": {"type": "function", "name": "get_weather"}},
}


@MODES
@pytest.mark.parametrize("name", RESPONSES)
def test_a_response_is_the_stock_servers(servers: Servers, judge: Judge, name: str, stream: bool) -> None:
    body = {"model": TASK, "input": QUESTION, "max_output_tokens": 40, "temperature": 0, **RESPONSES[name]}
    ours, stock = both(servers, "/v1/responses", {**body, "stream": stream})
    judged(judge, of_response(ours), of_response(stock))


ASKED = [{"role": "user", "content": QUESTION}]
WEATHER = [{"role": "user", "content": "Call get_weather for the city of Rome."}]
USED = [
    {"role": "user", "content": "What is the weather in Rome?"},
    {"role": "assistant", "content": [
        {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": "Rome"}},
    ]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1", "content": "sunny"}, {"type": "text", "text": "Thanks. And now?"},
    ]},
]  # fmt: skip
TOOL = {"name": "get_weather", "description": "The weather of a city", "input_schema": CITY}
MESSAGES: dict[str, Json] = {
    "plain": {},
    "system": {"system": [{"type": "text", "text": "You answer "}, {"type": "text", "text": "briefly."}]},
    "one token": {"max_tokens": 1},
    "a system message in between": {"messages": [*ASKED, {"role": "system", "content": "Be brief."}, *ASKED]},
    "after a call": {"messages": USED, "tools": [TOOL]},
    "stop sequences": {"stop_sequences": [" the", "color"]},
    "no thinking": {"thinking": {"type": "disabled"}},
    "JSON schema": {"output_config": {"format": {"type": "json_schema", "schema": PERSON}}},
    "tools offered": {"tools": [TOOL]},
    "any tool": {"messages": WEATHER, "tools": [TOOL], "tool_choice": {"type": "any"}, "max_tokens": 80},
    "a tool named": {
        "messages": WEATHER,
        "tools": [TOOL],
        "tool_choice": {"type": "tool", "name": "get_weather"},
        "max_tokens": 60,
    },
}


@MODES
@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_is_the_stock_servers(servers: Servers, judge: Judge, name: str, stream: bool) -> None:
    body = {"model": TASK, "messages": ASKED, "max_tokens": 40, "temperature": 0, **MESSAGES[name]}
    ours, stock = both(servers, "/v1/messages", {**body, "stream": stream})
    judged(judge, of_message(ours), of_message(stock))


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "get_weather"}], ids=["any", "named"])
def test_a_call_that_no_message_can_hold_is_an_error_of_both(servers: Servers, choice: Json) -> None:
    """Asked for colours, the sample model calls the weather with a word for its arguments."""
    body = {
        "model": TASK,
        "messages": ASKED,
        "max_tokens": 80,
        "temperature": 0,
        "tools": [TOOL],
        "tool_choice": choice,
    }
    ours, stock = (post(url, "/v1/messages", body) for url in (servers.sunfleet_url, servers.stock_url))
    assert (ours.status, ours.body["error"]["code"]) == (502, "unsayable_answer")
    assert (stock.status, "valid dictionary" in stock.body["error"]["message"]) == (400, True)


TOKENIZED: dict[str, tuple[str, Json]] = {
    "a prompt": ("/tokenize", {"prompt": PROMPTS[0], "return_token_strs": True}),
    "a chat": ("/tokenize", {"messages": ASKED}),
    "tokens": ("/detokenize", {"tokens": IDS[0]}),
    "a message": ("/v1/messages/count_tokens", {"messages": USED, "tools": [TOOL], "system": "Be brief."}),
    "a message without thinking": ("/v1/messages/count_tokens", {"messages": ASKED, "thinking": {"type": "disabled"}}),
}


@pytest.mark.parametrize("name", TOKENIZED)
def test_tokens_are_the_stock_servers(servers: Servers, judge: Judge, name: str) -> None:
    path, body = TOKENIZED[name]
    ours, stock = both(servers, path, {"model": TASK, **body})
    judged(judge, ours.body, stock.body)
