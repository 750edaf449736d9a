"""How requests end that do not end well: who is told, and what is freed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest
from tests.engine.conftest import Task
from tests.engine.legs import completion, leave_after, metric, post
from tests.engine.test_exact import tokens

from support.engines import Engine, free_ports

KV_USED = "vllm:kv_cache_usage_perc"
LEASE_SECONDS = 30


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.2)
    return condition()


def all_kv_free(*engines: Engine) -> bool:
    return all(metric(engine, KV_USED) == 0 for engine in engines)


def test_a_client_that_leaves_frees_both_pods(lora_task: Task, rng: random.Random) -> None:
    pair = lora_task.pair
    body = completion(tokens(rng, 100), 800, ignore_eos=True, stream=True)
    for events in (0, 1, 5):
        prefilled = pair.first_leg("/v1/completions", body)
        leave_after(pair.decode, "/v1/completions", pair.second_leg(body, prefilled), events)
    assert within(LEASE_SECONDS / 2, lambda: all_kv_free(pair.prefill, pair.decode))


def test_a_refused_hand_over_frees_the_prefill_pod_before_its_lease_ends(lora_task: Task, rng: random.Random) -> None:
    pair, body = lora_task.pair, completion(tokens(rng, 100), 8)
    prefilled = pair.first_leg("/v1/completions", body)
    assert post(pair.decode, "/v1/completions", pair.second_leg(body, prefilled) | {"n": 2}).status == 400
    assert within(LEASE_SECONDS / 3, lambda: all_kv_free(pair.prefill, pair.decode))


@pytest.mark.parametrize("stream", [False, True])
def test_kv_that_cannot_be_read_is_a_503_with_a_reason(lora_task: Task, rng: random.Random, stream: bool) -> None:
    pair, body = lora_task.pair, completion(tokens(rng, 60), 8, stream=stream)
    prefilled = pair.first_leg("/v1/completions", body)
    nobody = free_ports(1)[0]
    leg = pair.second_leg(body, prefilled, remote_port=nobody, remote_engine_id=f"gone-{stream}")
    answer = post(pair.decode, "/v1/completions", leg)
    assert (answer.status, answer.error["code"]) == (503, "sun_kv_load_failed"), answer.body
    assert within(10, lambda: all_kv_free(pair.decode))
