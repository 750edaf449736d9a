"""Several answers to one request: each through its own two legs, all in one answer, and nothing left when one fails."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from typing import Any

import openai
import pytest

from sunfleet_fakes.harness import expected_text, tokenize
from sunfleet_router.bodies import choices, clientbody
from sunfleet_router_harness import Engines, Router, RouterFactory
from sunfleet_router_streams import PATHS, QUESTIONS, aimed_at, count, error_of, events_of, until

BATCH = ["what is one", "what is the second of three", "and three"]
IDS = [tokenize(prompt) for prompt in BATCH]


def right(prompt: str, limit: int = 16) -> str:
    return expected_text("maths", "base", tokenize(prompt), answer_tokens=16, max_tokens=limit)


def texts(events: list[Any]) -> dict[int, str]:
    found: dict[int, str] = defaultdict(str)
    for event in events:
        for choice in event.get("choices", ()) if isinstance(event, dict) else ():
            found[choice["index"]] += choice.get("text") or choice.get("delta", {}).get("content") or ""
    return dict(found)


def usage_of(prompts: list[str], n: int, tokens: int = 16) -> tuple[int, int, int]:
    prompt, answer = sum(len(tokenize(one)) for one in prompts), len(prompts) * n * tokens
    return prompt, answer, prompt + answer


def counted(usage: dict[str, Any]) -> tuple[int, int, int]:
    return usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]


@pytest.mark.parametrize("prompts", [BATCH, IDS], ids=["text", "token ids"])
@pytest.mark.parametrize("n", [1, 2])
async def test_a_batch_is_answered_prompt_by_prompt(
    router: Router, engines: Engines, prompts: list[Any], n: int
) -> None:
    status, answer = await router.post("/v1/completions", {"model": "acme/maths", "prompt": prompts, "n": n})
    assert status == 200, answer
    assert [choice["index"] for choice in answer["choices"]] == list(range(3 * n))
    assert [choice["text"] for choice in answer["choices"]] == [right(prompt) for prompt in BATCH for _ in range(n)]
    assert counted(answer["usage"]) == usage_of(BATCH, n)
    assert len(engines.prefill_requests()) == len(engines.decode_requests()) == 3 * n


@pytest.mark.parametrize("kind", ["chat", "completion"])
async def test_n_streamed_answers_come_numbered_with_one_usage_and_one_end(
    router: Router, engines: Engines, kind: str
) -> None:
    whole = (await router.post(PATHS[kind], {**QUESTIONS[kind], "n": 3}))[1]
    events = await events_of(router, kind, "mine", n=3, stream_options={"include_usage": True})
    assert texts(events) == {
        choice["index"]: choice.get("text") or choice["message"]["content"] for choice in whole["choices"]
    }
    assert events[-1] == "[DONE]"
    assert events.count("[DONE]") == 1
    usages = [event for event in events[:-1] if event["choices"] == []]
    assert usages == events[-2:-1]
    assert counted(usages[0]["usage"]) == counted(whole["usage"])
    prefix = "chatcmpl" if kind == "chat" else "cmpl"
    assert {event["id"] for event in events[:-1]} == {f"{prefix}-mine"}
    assert len({event["created"] for event in events[:-1]}) == 1
    finishes = [choice["finish_reason"] for event in events[:-1] for choice in event["choices"]]
    assert [finish for finish in finishes if finish] == ["stop"] * 3
    assert len(engines.prefill_requests()) == 6


async def test_without_usage_options_no_usage_is_streamed(router: Router) -> None:
    events = await events_of(router, "completion", "x", n=2, prompt=BATCH)
    assert not any(event.get("usage") for event in events[:-1])
    assert texts(events) == {index: right(BATCH[index // 2]) for index in range(6)}


async def test_each_answer_has_its_own_seed_and_the_engines_see_one_answer_each(
    router: Router, engines: Engines
) -> None:
    body = {"model": "acme/maths", "prompt": BATCH[:2], "n": 2, "best_of": 2, "seed": 7, "temperature": 1.0}
    await router.post("/v1/completions", body)
    for legs in (engines.prefill_requests(), engines.decode_requests()):
        bodies = [leg["body"] for leg in legs]
        assert sorted(sent["seed"] for sent in bodies) == [7, 7, 8, 8]
        assert not any({"n", "best_of"} & sent.keys() for sent in bodies)
        assert len({leg["headers"]["x-request-id"] for leg in legs}) == 4


async def test_the_openai_client_gets_n_answers(router: Router) -> None:
    client = openai.AsyncOpenAI(base_url=router.url + "/v1", api_key="none", max_retries=0)
    messages: Any = QUESTIONS["chat"]["messages"]
    whole = await client.chat.completions.create(model="acme/maths", messages=messages, n=2)
    assert [choice.index for choice in whole.choices] == [0, 1]
    batch = await client.completions.create(model="acme/maths", prompt=BATCH)
    assert [choice.text for choice in batch.choices] == [right(prompt) for prompt in BATCH]
    await client.close()


async def test_a_batch_takes_only_its_own_share_at_once(start_router: RouterFactory, engines: Engines) -> None:
    router = await start_router(settings={"answers_at_once": 2}, queue={"maxRequests": 1})
    engines.configure_prefills(prefill_seconds=0.05)
    running = asyncio.ensure_future(router.post("/v1/completions", {"model": "acme/maths", "prompt": BATCH, "n": 3}))
    await until(engines.prefill_requests)
    most = 0.0
    while not running.done():
        most = max(most, sum(engine.metric("vllm:num_requests_running") for engine in (engines.maths,)))
        assert router.parts.load.requests["acme/maths"] <= 1  # one request of a client, however many answers
        await asyncio.sleep(0.01)
    assert (await running)[0] == 200
    assert most <= 2


async def test_one_failure_before_the_first_byte_is_a_plain_error_and_ends_the_others(
    start_router: RouterFactory, engines: Engines
) -> None:
    router = await start_router(settings={"attempts": 1})
    engines.configure_prefills(prefill_seconds=0.3)
    engines.maths.configure(fail_status=500, requests=1)
    engines.maths_too.configure(fail_status=500, requests=1)
    status, answer = await router.post("/v1/completions", {"model": "acme/maths", "prompt": BATCH, "stream": True})
    assert (status, answer["error"]["code"]) == (502, "sun_fault")
    await router.settled()
    assert not engines.decode_requests()


async def test_a_failure_in_mid_stream_ends_with_one_error_event(start_router: RouterFactory, engines: Engines) -> None:
    router = await start_router(settings={"resume_limit": 0})
    engines.configure_decoders(tokens_per_second=100, fail_after_tokens=5, requests=1)
    events = await events_of(router, "completion", aimed_at(engines, engines.decode), n=4)
    assert error_of(events)["code"] == "sun_fault"
    await router.settled()


async def test_a_broken_part_goes_on_elsewhere(router: Router, engines: Engines) -> None:
    engines.decode.configure(fail_after_tokens=5, requests=1)
    engines.decode_too.configure(fail_after_tokens=5, requests=1)
    events = await events_of(router, "completion", "x", n=4)
    assert texts(events) == dict.fromkeys(range(4), right(QUESTIONS["completion"]["prompt"]))
    assert count(router, "resumed_streams", "acme/maths", "completed") >= 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_ends_every_part(router: Router, engines: Engines, stream: bool) -> None:
    engines.configure_decoders(tokens_per_second=5)
    body = {"model": "acme/maths", "prompt": BATCH, "n": 2, "stream": stream}
    request = asyncio.ensure_future(router.post("/v1/completions", body))
    await until(lambda: len(engines.decode_requests()) == 6)
    request.cancel()
    await router.settled()
    await until(lambda: all(leg["outcome"] == "disconnected" for leg in engines.decode_requests()))


async def test_answers_of_one_token_need_no_decoder(router: Router, engines: Engines) -> None:
    events = await events_of(router, "completion", "x", n=2, max_tokens=1)
    assert texts(events) == dict.fromkeys(range(2), right(QUESTIONS["completion"]["prompt"], 1))
    assert not engines.decode_requests()


def test_every_answer_gets_the_request_that_a_client_would_send_for_it_alone() -> None:
    body = {"model": "m", "prompt": ["a b", [1, 2]], "n": 2, "seed": 5, "top_p": 0.5, "stop": ["x"]}
    parts = choices.split(clientbody.parse("completion", json.dumps(body).encode()), 4)
    assert [(part.body["prompt"], part.body["seed"], part.prompt_tokens) for part in parts] == [
        ("a b", 5, 2), ("a b", 6, 2), ([1, 2], 5, 2), ([1, 2], 6, 2),
    ]  # fmt: skip
    assert all(part.answers == 1 and part.body["top_p"] == 0.5 and part.body["stop"] == ["x"] for part in parts)


def test_usage_counts_each_prompt_once_and_every_answer() -> None:
    def body(prompt: int, completion: int, cached: int, reasoning: int) -> bytes:
        usage = {
            "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached, "created_cache_tokens": None},
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }  # fmt: skip
        return json.dumps({"id": "cmpl-r-0", "choices": [{"index": 0}], "usage": usage}).encode()

    whole = json.loads(
        choices.Together(2).whole([body(3, 5, 2, 1), body(3, 6, 3, 1), body(4, 7, 1, 1), body(4, 8, 4, 0)])
    )
    assert whole["usage"] == {
        "prompt_tokens": 7, "completion_tokens": 26, "total_tokens": 33,
        "prompt_tokens_details": {"cached_tokens": 3, "created_cache_tokens": None},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }  # fmt: skip
    assert whole["id"] == "cmpl-r"
