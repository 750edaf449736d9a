"""Prefix affinity with bounded load, ejection of pods that fail, and what other routers have taken."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sunfleet_api.wire import EngineInfo
from sunfleet_router.admission.load import Load
from sunfleet_router.bodies.beginning import beginning
from sunfleet_router.fleet.snapshot import Endpoint
from sunfleet_router.policies import Choice, affinity, decode, occupancy, prefill
from sunfleet_router.policies.outlier import FAILURES, FIRST, LONGEST, TRIAL, Outliers
from sunfleet_router_harness import Engines, Router, RouterFactory
from sunfleet_router_streams import until

FEWER = settings(max_examples=50)
PATH = "/v1/completions"
TEXT: dict[str, Any] = {"model": "acme/maths", "prompt": "one two three", "max_tokens": 4}


def pod(uid: str, capacity: int = 10_000) -> Endpoint:
    info = EngineInfo(role="decode", kv_capacity_tokens=capacity, block_size=16, max_model_len=capacity)
    return Endpoint(uid, uid, "127.0.0.1", 8000, "decode", "f", info)


PODS = [pod(f"p{number}") for number in range(5)]

# Affinity


@FEWER
@given(st.text(max_size=20), st.integers(1, 2000), st.integers(0, 4))
def test_a_pod_that_goes_moves_only_its_own_requests(alike: str, tokens: int, gone: int) -> None:
    before = affinity.choose(alike, tokens, PODS, {})
    left = [one for one in PODS if one != PODS[gone]]
    after = affinity.choose(alike, tokens, left, {})
    assert after == before or before == PODS[gone]
    assert affinity.choose(alike, tokens, PODS[::-1], {}) == before


@FEWER
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 20_000)), min_size=1, max_size=80))
def test_no_pod_gets_more_than_its_share_whatever_is_popular(requests: list[tuple[str, int]]) -> None:
    in_flight: Counter[str] = Counter()
    for alike, tokens in requests:
        chosen = affinity.choose(alike, tokens, PODS, in_flight)
        least = min(in_flight[one.uid] for one in PODS)
        in_flight[chosen.uid] += tokens
        share = affinity.FACTOR * in_flight.total() / len(PODS)
        assert in_flight[chosen.uid] <= max(affinity.SLACK, share, least + tokens)


def test_requests_that_begin_alike_meet_again_and_different_ones_spread() -> None:
    chosen = {str(number): affinity.choose(str(number), 100, PODS, {}).uid for number in range(500)}
    assert chosen == {name: affinity.choose(name, 100, PODS, {}).uid for name in chosen}
    assert all(60 < count < 140 for count in Counter(chosen.values()).values())


def chat(*turns: str, system: str = "be brief") -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(turns)]
    return {"messages": [{"role": "system", "content": system}, *messages]}


def test_later_turns_of_a_chat_and_longer_prompts_begin_as_their_first() -> None:
    first = beginning(chat("hi"))
    assert beginning(chat("hi", "hello", "and now?")) == first
    assert beginning(chat("ho")) != first
    assert beginning(chat("hi", system="be long")) != first
    long = "x" * 10_000
    assert beginning({"prompt": long}) == beginning({"prompt": long + "y"})
    assert beginning({"prompt": list(range(3000))}) == beginning({"prompt": list(range(4000))})
    assert beginning({"messages": [{"role": "tool"}]})


def test_affinity_never_wins_over_a_doubt() -> None:
    facts = prefill.PrefillFacts("r", "f", alike="a", tokens=10)
    favourite = prefill.choose(facts, PODS, {})
    assert isinstance(favourite, Choice)
    other = prefill.choose(facts, PODS, {}, {favourite.endpoint.uid})
    assert isinstance(other, Choice)
    assert other.endpoint != favourite.endpoint


# Ejection


def test_a_pod_that_fails_again_and_again_is_let_be_for_longer_and_longer() -> None:
    outliers, now = Outliers(), 0.0
    for _ in range(FAILURES - 1):
        outliers.failed("a", now)
    assert not outliers.ejected(now)
    outliers.failed("a", now)
    lengths = []
    for _ in range(8):
        began = now
        while "a" in outliers.ejected(now):
            now += 1
        lengths.append(now - began)
        outliers.failed("a", now)
    assert lengths == [min(FIRST * 2**number, LONGEST) for number in range(8)]


def test_one_success_forgives_everything() -> None:
    outliers = Outliers()
    for _ in range(FAILURES):
        outliers.failed("a", 0)
    outliers.succeeded("a")
    assert not outliers
    outliers.failed("a", 1)
    assert not outliers.ejected(1)


def test_after_its_time_one_request_tries_the_pod_while_the_others_stay_away() -> None:
    outliers = Outliers()
    for _ in range(FAILURES):
        outliers.failed("a", 0)
    assert not outliers.ejected(FIRST)
    outliers.chosen("a", FIRST)
    assert set(outliers.ejected(FIRST)) == {"a"}
    assert not outliers.ejected(FIRST + TRIAL), "a trial that nobody heard of again must not eject for ever"
    outliers.keep(frozenset({"b"}))
    assert not outliers


def test_failures_now_and_then_among_successes_eject_nobody() -> None:
    load = Load(1.0, clock=lambda: 0.0)
    for _ in range(10):
        for _ in range(FAILURES - 1):
            load.failed("a")
        load.succeeded("a")
    assert not load.ejected()


async def test_a_pod_that_answers_nonsense_is_soon_asked_no_more(router: Router, engines: Engines) -> None:
    engines.maths.configure(fail_status=500)
    answers = [(await router.post(PATH, {**TEXT, "prompt": f"prompt {number}"}))[0] for number in range(60)]
    assert answers.count(502) == FAILURES
    assert len(engines.maths.requests()) == FAILURES
    assert set(answers[-20:]) == {200}


# Other routers


PAGE = b"""# HELP vllm:kv_cache_usage_perc KV-cache usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="sunfleet"} 0.5
vllm:num_requests_running{engine="0",model_name="sunfleet"} 6.0
vllm:num_requests_waiting{engine="0",model_name="sunfleet"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 9.0
"""


def test_an_engines_own_figures_are_read_and_ours_are_taken_out() -> None:
    seen = occupancy.read(PAGE)
    assert seen == occupancy.Seen(0.5, 8)
    assert occupancy.of_others(seen, 8000, ours=0) == 4000
    assert occupancy.of_others(seen, 8000, ours=6) == 1000
    assert occupancy.of_others(seen, 8000, ours=9) == 0
    assert occupancy.read(b"nothing of the kind 1\n") is None


def test_what_others_have_taken_fills_a_pod_like_our_own_reservations() -> None:
    facts = decode.DecodeFacts("r", 4000, ("f",))
    assert decode.choose(facts, PODS[:2], {"p0": 7000, "p1": 1000}, two=True) == Choice(PODS[1])


@FEWER
@given(st.dictionaries(st.sampled_from([one.uid for one in PODS]), st.integers(0, 8000)), st.text(max_size=6))
def test_of_two_at_random_the_emptier_is_chosen_and_never_the_fullest(taken: dict[str, int], request_id: str) -> None:
    result = decode.choose(decode.DecodeFacts(request_id, 100, ("f",)), PODS, taken, two=True)
    assert isinstance(result, Choice)
    fuller = [one for one in PODS if taken.get(one.uid, 0) >= taken.get(result.endpoint.uid, 0)]
    assert len(fuller) >= 2


def test_several_routers_with_the_same_picture_do_not_all_go_to_one_pod() -> None:
    picture = {one.uid: 1000 + 10 * at for at, one in enumerate(PODS)}
    facts = [decode.DecodeFacts(str(number), 100, ("f",)) for number in range(100)]
    alone = [decode.choose(one, PODS, picture) for one in facts]
    many = [decode.choose(one, PODS, picture, two=True) for one in facts]
    assert len({one.endpoint.uid for one in alone if isinstance(one, Choice)}) == 1
    counts = Counter(one.endpoint.uid for one in many if isinstance(one, Choice))
    assert len(counts) == len(PODS) - 1
    assert max(counts.values()) < 60


async def test_a_pod_that_another_router_has_filled_gets_nothing_until_it_is_free(
    start_router: RouterFactory, engines: Engines
) -> None:
    first = await start_router()
    second = await start_router()
    engines.configure_decoders(hang="stream", hang_after_tokens=1)
    long = {**TEXT, "max_tokens": 2000}
    held = [asyncio.ensure_future(first.stream(PATH, long)) for _ in range(16)]
    await until(lambda: len(first.parts.load.decodes) == 2 and first.parts.load.decodes.total() == 16)
    await second.parts.scraper.look()
    await first.parts.scraper.look()
    assert not first.parts.admission.others, "all of them are its own"
    others = second.parts.admission.others
    assert len(others) == 2
    assert all(tokens > 0 for tokens in others.values())
    for one in held:
        one.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    await first.settled()
    await until(
        lambda: all(not engine.metric("vllm:num_requests_running") for engine in (engines.decode, engines.decode_too))
    )
    await second.parts.scraper.look()
    assert not second.parts.admission.others


@pytest.mark.parametrize("engine_is", ["gone", "silent"])
async def test_metrics_that_cannot_be_read_hold_nothing_up(router: Router, engine_is: str) -> None:
    router.parts.admission.others_have({"x": 5})
    if engine_is == "gone":
        router.parts.fleet.snapshot = type(router.parts.fleet.snapshot)(
            router.parts.fleet.snapshot.tasks, {"n/d": (pod("nobody"),)}
        )
    await router.parts.scraper.look()
    assert not router.parts.admission.others
