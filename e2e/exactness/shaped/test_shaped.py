"""Whatever a request asks for: the answer of two legs is the answer of one stock server. Contract line 7.

Ids and times aside, whole bodies are compared: text, tokens, log-probabilities, tool calls, finish reasons, usage.
"""

from __future__ import annotations

from typing import Any

import pytest

from support.judge import FULL, SIXTEEN_BIT, Judge
from support.shapes import of_stream, of_whole
from support.stock import TASK, Servers
from support.streams import Json, ask

LINE = "7 shaped, against a stock server"
CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
QUESTION = [{"role": "user", "content": "Name three colours and say one sentence about each."}]
CONVERSATION = [
    {"role": "system", "content": "You answer briefly."},
    {"role": "user", "content": "What is the capital of France?"},
    {"role": "assistant", "content": "Paris."},
    {"role": "user", "content": "And of Italy?"},
]
STORY = "Once upon a time there was a small village by the sea, and"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "maximum": 120, "minimum": 1},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}

COMPLETIONS: dict[str, Json] = {
    "plain": {},
    "one token": {"max_tokens": 1},
    "two tokens": {"max_tokens": 2},
    "no limit given": {"max_tokens": None},
    "log-probabilities": {"logprobs": 3},
    "the chosen token's log-probability": {"logprobs": 0},
    "stop string": {"stop": [" the"]},
    "stop string kept": {"stop": [" the"], "include_stop_str_in_output": True},
    "several stop strings": {"stop": ["zzz", ".", ","]},
    "ignored end": {"ignore_eos": True},
    "at least so many": {"min_tokens": 20, "stop": [" a"]},
    "repetition penalty": {"repetition_penalty": 1.4},
    "presence and frequency": {"presence_penalty": 1.2, "frequency_penalty": 0.9},
    "biased": {"logit_bias": {"260": 5, "30": -100}},
    "forbidden words": {"bad_words": ["the", "village"]},
    "allowed tokens": {"allowed_token_ids": [28, 30, 253, 260, 281, 288, 339, 411, 904]},
    "token ids": {"return_token_ids": True},
    "special tokens shown": {"skip_special_tokens": False, "spaces_between_special_tokens": False},
    "regex": {"structured_outputs": {"regex": r"[A-Z][a-z]{2,8} (is|was) [a-z]{3,9}\."}},
    "choice": {"structured_outputs": {"choice": ["red wine", "green tea", "black coffee"]}},
    "JSON schema": {"structured_outputs": {"json": PERSON}, "max_tokens": 60},
    "token ids as prompt": {"prompt": [504, 253, 1838, 4279, 314, 260, 2530, 28]},
    # "A smile:" and three of an emoji's four bytes: the engine's detokeniser begins its text with them.
    "a prompt that ends within a character": {"prompt": [49, 13536, 42, 40303]},
}
CHATS: dict[str, Json] = {
    "plain": {},
    "conversation": {"messages": CONVERSATION},
    "one token": {"max_tokens": 1},
    "two tokens": {"max_completion_tokens": 2},
    "log-probabilities": {"logprobs": True, "top_logprobs": 4},
    "the chosen token's log-probability": {"logprobs": True},
    "stop string": {"stop": ["color"]},
    "response format": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}},
        "max_tokens": 60,
    },
    "any JSON object": {"response_format": {"type": "json_object"}, "max_tokens": 60},
    "tools offered": {"tools": [WEATHER], "max_tokens": 60},
    "a tool required": {"tools": [WEATHER], "tool_choice": "required", "max_tokens": 80},
    "a tool named": {
        "tools": [WEATHER],
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
        "max_tokens": 60,
    },
    "an answer continued": {
        "messages": [*QUESTION, {"role": "assistant", "content": "Red is"}],
        "add_generation_prompt": False,
        "continue_final_message": True,
    },
    "penalties": {"presence_penalty": 1.0, "frequency_penalty": 0.5},
    "token ids": {"return_token_ids": True},
}


def body(path: str, changes: Json) -> Json:
    base: Json = {"model": TASK, "max_tokens": 40, "temperature": 0}
    base |= {"messages": QUESTION} if path == CHAT else {"prompt": STORY}
    return {key: value for key, value in (base | changes).items() if value is not None}


CASES = [
    pytest.param(path, changes, id=f"{'chat' if path == CHAT else 'completion'}: {name}")
    for path, cases in ((COMPLETION, COMPLETIONS), (CHAT, CHATS))
    for name, changes in cases.items()
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("path", "changes"), CASES)
def test_the_answer_is_the_stock_servers(
    servers: Servers, judge: Judge, path: str, changes: Json, stream: bool
) -> None:
    options: Json = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    ours, stock = (
        ask(url, body(path, changes) | options, path=path) for url in (servers.sunfleet_url, servers.stock_url)
    )
    assert stock.status == 200, stock.body
    assert ours.status == 200, ours.body
    row = judge.table.row(LINE, SIXTEEN_BIT, FULL)
    row.requests += 1
    row.mismatches += 1
    assert shaped(ours) == shaped(stock)
    row.mismatches -= 1


def shaped(reply: Any) -> Json:
    return of_stream(reply.events) if reply.events else of_whole(reply.body)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_stop_string_may_begin_in_the_prefills_token(servers: Servers, judge: Judge, size: int) -> None:
    """Stop strings that start at the first character of the answer and end within the decoder's tokens."""
    text = ask(servers.stock_url, body(COMPLETION, {}), path=COMPLETION).text
    changes = {"stop": [text[: size * 3]], "include_stop_str_in_output": True}
    test_the_answer_is_the_stock_servers(servers, judge, COMPLETION, changes, stream=True)
    test_the_answer_is_the_stock_servers(servers, judge, COMPLETION, changes, stream=False)


REFUSED: dict[str, tuple[str, Json]] = {
    "best of several": (COMPLETION, {"best_of": 2}),
    "the prompt's text": (CHAT, {"return_prompt_text": True}),
    "chosen tokens' log-probabilities": (COMPLETION, {"logprobs": 1, "logprob_token_ids": [260]}),
    "echo": (COMPLETION, {"echo": True}),
    "prompt log-probabilities": (COMPLETION, {"prompt_logprobs": 1}),
    "beam search": (COMPLETION, {"use_beam_search": True}),
    "suffix": (COMPLETION, {"suffix": "end"}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_equal_is_refused(servers: Servers, name: str) -> None:
    path, changes = REFUSED[name]
    reply = ask(servers.sunfleet_url, body(path, changes), path=path)
    assert reply.status == 400
    assert reply.error is not None
    assert reply.error["param"] in changes
    assert reply.error["message"]
