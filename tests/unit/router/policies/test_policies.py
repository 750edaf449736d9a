"""Placement as functions: who is chosen, who waits, who is refused, and what a change of pods leaves alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sunfleet_api.wire import EngineInfo
from sunfleet_router.fleet.snapshot import Endpoint, Route
from sunfleet_router.policies import Choice, Reject, Wait, decode, prefill, route


def pod(uid: str, capacity: int = 1000, fingerprint: str = "f") -> Endpoint:
    info = (
        EngineInfo(role="decode", kv_capacity_tokens=capacity, block_size=16, max_model_len=500) if capacity else None
    )
    return Endpoint(uid, uid, "127.0.0.1", 8000, "decode", fingerprint, info)


def test_a_request_takes_whole_blocks_and_never_more_than_the_longest() -> None:
    """Three of 100 tokens on 304 would be a block short: each fills seven blocks of 16."""
    assert [pod("a").room(tokens) for tokens in (1, 16, 17, 100, 500, 9000)] == [16, 16, 32, 112, 512, 512]
    assert pod("a", capacity=0).room(100) == 100, "nothing is known of it yet"


PODS = st.lists(
    st.builds(pod, st.text("abcdef", min_size=1, max_size=3), st.integers(0, 4000), st.sampled_from("fg")),
    unique_by=lambda one: one.uid,
    max_size=8,
)
RESERVED = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(0, 4000))


def facts(tokens: int = 100, tried: frozenset[str] = frozenset(), request_id: str = "r") -> decode.DecodeFacts:
    return decode.DecodeFacts(request_id, tokens, ("f",), tried)


@given(PODS, RESERVED, st.integers(1, 5000), st.frozensets(st.text("abcdef", min_size=1, max_size=3)))
def test_a_decode_choice_has_room_fits_the_kv_and_was_not_tried(
    pods: list[Endpoint], reserved: dict[str, int], tokens: int, tried: frozenset[str]
) -> None:
    result = decode.choose(facts(tokens, tried), pods, reserved)
    able = [one for one in pods if one.capacity and one.fingerprint == "f"]
    untried = [one for one in able if one.uid not in tried]
    roomy = [one for one in untried if reserved.get(one.uid, 0) + min(tokens, one.capacity) <= one.capacity]
    if isinstance(result, Choice):
        assert result.endpoint in roomy
    elif isinstance(result, Wait):
        assert untried
        assert not roomy
    else:
        assert result == (Reject("tried") if able else Reject("none"))


@given(PODS, RESERVED, st.integers(1, 5000), st.text(max_size=5))
def test_removing_a_pod_that_was_not_chosen_changes_nothing(
    pods: list[Endpoint], reserved: dict[str, int], tokens: int, request_id: str
) -> None:
    result = decode.choose(facts(tokens, request_id=request_id), pods, reserved)
    if isinstance(result, Choice):
        for gone in pods:
            if gone != result.endpoint:
                left = [one for one in pods if one != gone]
                assert decode.choose(facts(tokens, request_id=request_id), left, reserved) == result


@given(PODS, RESERVED, st.integers(1, 5000))
def test_the_order_in_which_pods_are_known_does_not_matter(
    pods: list[Endpoint], reserved: dict[str, int], tokens: int
) -> None:
    assert decode.choose(facts(tokens), pods, reserved) == decode.choose(facts(tokens), pods[::-1], reserved)


def test_the_emptiest_pod_relative_to_its_size_is_chosen() -> None:
    small, large = pod("small", 1000), pod("large", 4000)
    assert decode.choose(facts(), [small, large], {"large": 1000}) == Choice(small)
    assert decode.choose(facts(), [small, large], {"large": 1000, "small": 500}) == Choice(large)


def test_a_suspect_is_the_last_resort() -> None:
    bad, good = pod("a"), pod("b")
    assert decode.choose(facts(), [bad, good], {"b": 800}, {"a"}) == Choice(good)
    assert decode.choose(facts(), [bad, good], {"b": 950}, {"a"}) == Choice(bad)


def test_a_request_larger_than_a_pod_gets_an_empty_one() -> None:
    assert decode.choose(facts(5000), [pod("a")], {}) == Choice(pod("a"))
    assert decode.choose(facts(5000), [pod("a")], {"a": 1}) == Wait()


def test_equal_pods_share_the_requests() -> None:
    pods = [pod(name) for name in "abcd"]
    results = [decode.choose(facts(request_id=str(number)), pods, {}) for number in range(400)]
    chosen = [result.endpoint.uid for result in results if isinstance(result, Choice)]
    assert all(50 < chosen.count(name) < 150 for name in "abcd")


def test_pods_that_a_file_names_twice_are_chosen_like_any() -> None:
    twice = [pod("a"), pod("a")]
    assert decode.choose(facts(), twice, {}) == Choice(twice[0])
    assert decode.choose(facts(), twice, {}, two=True) == Choice(twice[0])
    assert prefill.choose(prefill.PrefillFacts("r", "f", alike="x"), twice, {}) == Choice(twice[0])


def test_prefill_goes_to_the_pod_with_the_fewest_tokens_in_flight_that_makes_the_right_kv() -> None:
    pods = [pod("a"), pod("b"), pod("c", fingerprint="g")]
    wanted = prefill.PrefillFacts("r", "f")
    assert prefill.choose(wanted, pods, {"a": 5, "b": 4}) == Choice(pods[1])
    assert prefill.choose(prefill.PrefillFacts("r", "f", ("b",)), pods, {"a": 5}) == Choice(pods[0])
    assert prefill.choose(prefill.PrefillFacts("r", "f", ("a", "b")), pods, {}) == Reject("tried")
    assert prefill.choose(prefill.PrefillFacts("r", "h"), pods, {}) == Reject("none")
    assert isinstance(prefill.choose(prefill.PrefillFacts("r", None), pods, {}), Choice)


def test_revisions_share_requests_by_weight_and_a_request_keeps_its_own() -> None:
    routes = [Route("old", 90, "n/d", "s"), Route("new", 10, "n/d", "t"), Route("never", 0, "n/d", "u")]
    chosen = [route.choose(routes, f"request-{number}") for number in range(2000)]
    counts = {one.revision: sum(pick == one for pick in chosen) for one in routes}
    assert 120 < counts["new"] < 290
    assert counts["never"] == 0
    assert chosen == [route.choose(routes, f"request-{number}") for number in range(2000)]
    assert route.choose([routes[2]], "r") is None
    assert route.choose([], "r") is None


def test_a_revision_without_a_ready_pod_leaves_its_requests_to_the_others_and_takes_none_of_theirs() -> None:
    ready = Endpoint("uid", "pod", "127.0.0.1", 8000, "prefill", "f")
    old, new, idle = (
        Route("old", 50, "n/d", "s", (ready,)), Route("new", 50, "n/d", "t"), Route("idle", 0, "n/d", "u", (ready,)),
    )  # fmt: skip
    names = [f"request-{number}" for number in range(500)]
    assert {route.choose([old, new, idle], name) for name in names} == {old}
    assert {route.choose([new, idle], name) for name in names} == {new}, "no weight is no permission"
    canary = Route("canary", 5, "n/d", "v", (ready,))
    assert {route.choose([Route("ill", 95, "n/d", "s"), canary], name) for name in names} > {canary}, "held, not moved"
    # Those of a revision that is well stay where they were.
    well = Route("new", 50, "n/d", "t", (ready,))
    before = {name: route.choose([old, well, idle], name) for name in names}
    assert all(route.choose([old, new, idle], name) == old for name, chosen in before.items() if chosen == old)
