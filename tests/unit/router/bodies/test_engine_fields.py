"""What happens to each field of the pinned engine's request bodies: a new engine's new field has to be decided on.

``sunfleet_engine_protocol.json`` is what the engine takes; a test in the engine's environment keeps it true.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sunfleet_engine_protocol import recorded
from sunfleet_router.bodies import clientbody, legs
from sunfleet_router.bodies.clientbody import REFUSED_FIELDS, Kind
from sunfleet_router.bodies.handover import PrefillReply
from sunfleet_router.bodies.tokenids import TokenIds
from sunfleet_router.dialects.messages.request import to_chat as from_message
from sunfleet_router.dialects.responses import request as responses
from sunfleet_router.errors import InvalidRequestError

DOCUMENT = (Path(__file__).parents[4] / "docs/openai-api.md").read_text(encoding="utf-8")
ENGINE: dict[str, list[str]] = recorded()["requests"]
TRANSFER = {
    "remote_block_ids": [1], "remote_engine_id": "e", "remote_request_id": "r", "remote_host": "h", "remote_port": 1,
}  # fmt: skip

BOTH = {
    "add_special_tokens", "allowed_token_ids", "bad_words", "frequency_penalty", "ignore_eos",
    "include_stop_str_in_output", "length_penalty", "logit_bias", "logprobs", "min_p", "presence_penalty",
    "repetition_detection", "repetition_penalty", "response_format", "return_token_offsets",
    "skip_special_tokens", "spaces_between_special_tokens", "stop", "stop_token_ids", "stream_interval",
    "structured_outputs", "temperature", "top_k", "top_p", "user", "watermarking",
}  # fmt: skip
PASSES: dict[Kind, set[str]] = {
    "chat": BOTH | {
        "add_generation_prompt", "chat_template", "chat_template_kwargs", "continue_final_message", "documents",
        "include_reasoning", "media_io_kwargs", "parallel_tool_calls", "reasoning_effort", "tool_choice", "tools",
        "top_logprobs",
    },
    "completion": BOTH,
}  # fmt: skip
# Looked at, changed for one of the legs, or answered by several pairs of them.
HANDLED: dict[Kind, set[str]] = {
    "chat": {
        "model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "min_tokens", "n",
        "priority", "return_token_ids", "seed", "truncate_prompt_tokens", "truncation_side",
    },
    "completion": {
        "model", "prompt", "stream", "stream_options", "max_tokens", "min_tokens", "n", "priority",
        "return_token_ids", "seed", "truncate_prompt_tokens", "truncation_side",
    },
}  # fmt: skip
UNANSWERABLE = {
    "echo", "logprob_token_ids", "prompt_logprobs", "return_prompt_text", "suffix", "thinking_token_budget",
    "use_beam_search",
}  # fmt: skip
CLASS: dict[Kind, str] = {"chat": "ChatCompletionRequest", "completion": "CompletionRequest"}
LEAST: dict[Kind, dict[str, Any]] = {
    "chat": {"model": "m", "messages": [{"role": "user", "content": "a"}]},
    "completion": {"model": "m", "prompt": "a"},
}

MESSAGES_PASS = {"temperature", "top_p", "top_k", "watermarking", "chat_template_kwargs"}
MESSAGES_HANDLED = {
    "model", "messages", "max_tokens", "output_config", "stop_sequences", "stream", "system", "thinking",
    "tool_choice", "tools",
}  # fmt: skip
MESSAGES_IGNORED = {"metadata"}
RESPONSES_HANDLED = {
    "include", "input", "instructions", "max_output_tokens", "reasoning", "stream", "text", "tool_choice", "tools",
    "top_logprobs", "truncation",
}  # fmt: skip
RESPONSES_IGNORED = {"max_tool_calls", "metadata", "prompt_cache_key", "service_tier"}  # told back at most


def parse(kind: Kind, **fields: Any) -> clientbody.Ask:
    return clientbody.parse(kind, json.dumps({**LEAST[kind], **fields}).encode())


@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_every_field_of_the_engine_is_decided_on_once(kind: Kind) -> None:
    decisions = [PASSES[kind], HANDLED[kind], UNANSWERABLE, REFUSED_FIELDS]
    for name in ENGINE[CLASS[kind]]:
        assert sum(name in one for one in decisions) == 1, f"{name} of {CLASS[kind]} is new: decide what happens to it"
    gone = (PASSES[kind] | HANDLED[kind]) - set(ENGINE[CLASS[kind]])
    assert not gone, f"the engine no longer knows {gone}"


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in PASSES for name in sorted(PASSES[kind])])
def test_a_field_that_passes_reaches_the_decoder_as_it_is(kind: Kind, name: str) -> None:
    ask = parse(kind, **{name: [1, "x"]})
    reply = PrefillReply({}, TokenIds.of([1]), [2], TRANSFER, "length")
    assert json.loads(legs.decode_body(ask, "s", reply))[name] == [1, "x"]
    if name != "stream_interval":
        assert json.loads(legs.prefill_body(ask, "s", "m"))[name] == [1, "x"]


@pytest.mark.parametrize("kind", ["chat", "completion"])
@pytest.mark.parametrize("name", sorted(UNANSWERABLE | REFUSED_FIELDS))
def test_a_field_that_is_refused_is_named_and_null_asks_for_nothing(kind: Kind, name: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        parse(kind, **{name: 1})
    assert refusal.value.param == name
    assert parse(kind, **{name: None})


@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_the_prompt_is_cut_once_by_the_prefill(kind: Kind) -> None:
    ask = parse(kind, truncate_prompt_tokens=-1, truncation_side="left")
    reply = PrefillReply({}, TokenIds.of([1]), [2], TRANSFER, "length")
    assert {"truncate_prompt_tokens", "truncation_side"} <= json.loads(legs.prefill_body(ask, "s", "m")).keys()
    assert not {"truncate_prompt_tokens", "truncation_side"} & json.loads(legs.decode_body(ask, "s", reply)).keys()


def test_every_field_of_the_messages_api_is_decided_on_once() -> None:
    decisions = [MESSAGES_PASS, MESSAGES_HANDLED, MESSAGES_IGNORED, REFUSED_FIELDS]
    for name in ENGINE["AnthropicMessagesRequest"]:
        assert sum(name in one for one in decisions) == 1, f"{name} is new: decide what happens to it"
    assert set(ENGINE["AnthropicCountTokensRequest"]) <= MESSAGES_PASS | MESSAGES_HANDLED
    chat = from_message({**LEAST["chat"], "max_tokens": 1, **dict.fromkeys(MESSAGES_PASS, 0.5)})
    assert {name: chat[name] for name in MESSAGES_PASS} == dict.fromkeys(MESSAGES_PASS, 0.5)


def test_every_field_of_the_responses_api_is_decided_on_once() -> None:
    passes = set(responses.SAME_NAME)
    decisions = [passes, RESPONSES_HANDLED, RESPONSES_IGNORED, set(responses.REFUSED), REFUSED_FIELDS]
    for name in ENGINE["ResponsesRequest"]:
        assert sum(name in one for one in decisions) == 1, f"{name} is new: decide what happens to it"
    chat = responses.to_chat({"input": "a", **dict.fromkeys(passes, 0.5)})
    assert {name: chat[name] for name in passes} == dict.fromkeys(passes, 0.5)
    assert passes <= set(ENGINE["ResponsesRequest"])
    assert passes <= set(ENGINE["ChatCompletionRequest"])


def test_the_tokenizers_bodies_pass_without_a_field_that_steers() -> None:
    for name in ("TokenizeCompletionRequest", "TokenizeChatRequest", "DetokenizeRequest"):
        assert set(ENGINE[name]) & REFUSED_FIELDS <= {"mm_processor_kwargs"}


@pytest.mark.parametrize("name", sorted(UNANSWERABLE | REFUSED_FIELDS | set(responses.REFUSED)))
def test_the_documentation_names_what_is_refused(name: str) -> None:
    assert f"`{name}`" in DOCUMENT
