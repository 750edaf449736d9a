"""Hundreds of requests that end badly in every way known: then no pod holds a block, and answers are exact."""

from __future__ import annotations

import http.client
import json
import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.engine.conftest import Task
from tests.engine.legs import Json, Pair, completion, leave_after, metric, post, release
from tests.engine.test_ends import all_kv_free, within
from tests.engine.test_exact import assert_exact, expected, tokens

from sunfleet_api import wire
from support.engines import Engine, free_ports
from support.reference import Reference

PATH = "/v1/completions"
AT_ONCE = 8
GRAMMAR = {"structured_outputs": {"regex": "[0-9]{6}x"}}
# All held KV must be back long before a lease could have ended.
FREE_WITHIN_SECONDS = 10.0

Break = Callable[[Pair, Json, random.Random], None]


def leave(engine: Engine, body: Json, seconds: float) -> None:
    """Ask without a stream and hang up after a while."""
    connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=seconds)
    try:
        connection.request("POST", PATH, json.dumps(body).encode(), {"content-type": "application/json"})
        connection.getresponse().read()
    except TimeoutError:
        pass
    finally:
        connection.close()


def leave_a_stream(pair: Pair, body: Json, rng: random.Random) -> None:
    streamed = {**body, "stream": True}
    leg = pair.second_leg(streamed, pair.first_leg(PATH, streamed))
    leave_after(pair.decode, PATH, leg, rng.choice([0, 1, 2, 5]))


def leave_while_decoding(pair: Pair, body: Json, rng: random.Random) -> None:
    leave(pair.decode, pair.second_leg(body, pair.first_leg(PATH, body)), rng.choice([0.001, 0.01, 0.05, 0.3]))


def leave_while_prefilling(pair: Pair, body: Json, rng: random.Random) -> None:
    first = {"max_tokens": 1, "model": wire.ENGINE_MODEL, "cache_salt": pair.salt}
    leg = {**body, **first, "kv_transfer_params": wire.prefill_params(body["max_tokens"])}
    leave(pair.prefill, leg, rng.choice([0.001, 0.01, 0.05]))


def be_refused(pair: Pair, body: Json, rng: random.Random) -> None:
    refused: Json = rng.choice([{"n": 2}, {"echo": True}, {"temperature": -1}, {"logprobs": 1}])
    answer = post(pair.decode, PATH, pair.second_leg(body, pair.first_leg(PATH, body)) | refused)
    assert answer.status == 400, answer.body


def be_incomplete(pair: Pair, body: Json, rng: random.Random) -> None:
    """The decode pod cannot tell the prefill pod; whoever made the hand-over gives it back."""
    prefilled = pair.first_leg(PATH, body)
    lacking = rng.choice([*wire.REQUIRED_TRANSFER_FIELDS, wire.KEY_OUTPUT_TOKEN_IDS])
    answer = post(pair.decode, PATH, pair.second_leg(body, prefilled, **{lacking: None}))
    assert answer.error["code"] == "handover_incomplete"
    assert release(pair.prefill, prefilled) == 204


def be_forgotten(pair: Pair, body: Json, rng: random.Random) -> None:
    prefilled = pair.first_leg(PATH, body)
    for _ in range(rng.choice([1, 2])):
        assert release(pair.prefill, prefilled) == 204


def be_released_after_all(pair: Pair, body: Json, rng: random.Random) -> None:
    """A release that comes when the KV was read, or while it is."""
    body = {**body, "max_tokens": 4}
    prefilled = pair.first_leg(PATH, body)
    releasing = threading.Timer(rng.choice([0.0, 0.05]), release, (pair.prefill, prefilled))
    answer = post(pair.decode, PATH, pair.second_leg(body, prefilled))
    releasing.start()
    releasing.join()
    assert len(answer.token_ids) == 4


def have_a_wrong_grammar(pair: Pair, body: Json, rng: random.Random) -> None:
    answer = pair.first_leg(PATH, body | {"structured_outputs": {"regex": "[0-9"}})
    assert answer.status == 400, answer.body


def have_a_grammar_that_the_tokens_do_not_fit(pair: Pair, body: Json, rng: random.Random) -> None:
    answer = post(pair.decode, PATH, pair.second_leg(body | GRAMMAR, pair.first_leg(PATH, body)))
    assert (answer.status, answer.error["code"]) == (503, "sun_grammar_rejected_seed")


def end_with_the_first_token(pair: Pair, body: Json, rng: random.Random) -> None:
    first = pair.first_leg(PATH, body)
    release(pair.prefill, first)
    ends: Json = rng.choice([{"stop_token_ids": first.token_ids}, {"stop": first.text[:1]}] if first.text else [{}])
    again = pair.first_leg(PATH, body | ends)
    if ends:
        assert again.choice["finish_reason"] == "stop"
        assert again.body["kv_transfer_params"] is None, "nothing is left to hand over"
    else:
        release(pair.prefill, again)


def end_on_arrival(pair: Pair, body: Json, rng: random.Random) -> None:
    body = {**body, "max_tokens": 3}
    prefilled = pair.first_leg(PATH, body)
    prefilled.choice["token_ids"] = prefilled.token_ids * 3
    answer = post(pair.decode, PATH, pair.second_leg(body, prefilled))
    assert answer.choice["finish_reason"] == "length"


def find_nobody_to_read_from(pair: Pair, body: Json, rng: random.Random) -> None:
    prefilled = pair.first_leg(PATH, body)
    gone = {"remote_port": free_ports(1)[0], "remote_engine_id": f"gone-{rng.random()}"}
    answer = post(pair.decode, PATH, pair.second_leg(body, prefilled, **gone))
    assert (answer.status, answer.error["code"]) == (503, "sun_kv_load_failed")
    release(pair.prefill, prefilled)


KINDS: tuple[Break, ...] = (
    leave_a_stream, leave_while_decoding, leave_while_prefilling, be_refused, be_incomplete, be_forgotten,
    be_released_after_all, have_a_wrong_grammar, have_a_grammar_that_the_tokens_do_not_fit, end_with_the_first_token,
    end_on_arrival,
)  # fmt: skip


@pytest.mark.parametrize("count", [pytest.param(66, marks=pytest.mark.brief), 500])
def test_after_many_broken_requests_both_pods_are_as_before(
    lora_task: Task, reference: Reference, rng: random.Random, count: int
) -> None:
    pair, broken = lora_task.pair, Counter[str]()
    kinds = [KINDS[number % len(KINDS)] for number in range(count)]
    kinds[:: max(1, count // 6)] = [find_nobody_to_read_from] * len(kinds[:: max(1, count // 6)])
    rng.shuffle(kinds)

    def run(number: int) -> None:
        mine = random.Random(f"{count}-{number}")  # noqa: S311 - test data
        body = completion(tokens(mine, mine.randrange(2, 90)), 60, ignore_eos=True)
        kinds[number](pair, body, mine)
        broken[kinds[number].__name__] += 1

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(run, range(count)))
    assert broken.total() == count
    assert within(FREE_WITHIN_SECONDS, lambda: all_kv_free(pair.prefill, pair.decode)), str(broken)
    assert metric(pair.decode, "vllm:num_requests_waiting") == 0
    assert metric(pair.decode, "sunfleet_decode_computed_prompt_tokens_total") == 0
    prompt = tokens(rng, 70)
    assert_exact(pair.complete(prompt, 20, ignore_eos=True), expected(reference, lora_task, prompt, 20), "afterwards")
