"""Decode room: in order, bounded, with patience, and always given back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from sunfleet_api.wire import EngineInfo
from sunfleet_router.admission.claim import Claim
from sunfleet_router.admission.decode_room import Admission, Seat
from sunfleet_router.admission.load import Load
from sunfleet_router.admission.waiting import Bounds, Waiting
from sunfleet_router.errors import BusyError, NoDecodeEndpointError, PhaseTimeoutError
from sunfleet_router.fleet.current import Fleet
from sunfleet_router.fleet.replicas import Replicas
from sunfleet_router.fleet.snapshot import Endpoint, Limits, Snapshot, Task
from sunfleet_router.policies.decode import DecodeFacts

POOL = "n/d"


def pod(uid: str, capacity: int = 1000, fingerprint: str = "f") -> Endpoint:
    info = EngineInfo(role="decode", kv_capacity_tokens=capacity, block_size=16, max_model_len=capacity)
    return Endpoint(uid, uid, "127.0.0.1", 8000, "decode", fingerprint, info)


def claim(tokens: int, *, ttl: float = 5.0, most: int = 10, tried: tuple[str, ...] = ()) -> Claim:
    task = Task("t", limits=Limits(queue_requests=most, queue_ttl=ttl))
    return Claim(task, POOL, DecodeFacts("r", tokens, ("f",), tried), tokens)


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet()
    made.replace(Snapshot({}, {POOL: (pod("a"),)}))
    return made


@pytest.fixture
async def admission(fleet: Fleet) -> AsyncIterator[Admission]:
    books = Admission(fleet, Load(1.0), Waiting(Bounds(20, 10_000, 1_000_000), Replicas()))
    yield books
    assert not books.reserved
    for counter in (books.waiting.requests, books.waiting.prompt_tokens, books.waiting.tokens, books.waiting.size):
        assert not counter
    assert not books.queued_tokens
    assert not books._lines


async def sit(admission: Admission, wish: Claim, order: list[int], stay: asyncio.Event) -> Seat:
    with await admission.reserve(wish) as seat:
        order.append(wish.facts.tokens)
        await stay.wait()
        return seat


async def test_those_who_wait_are_served_in_order_and_a_large_one_is_not_overtaken(admission: Admission) -> None:
    order: list[int] = []
    first, rest = asyncio.Event(), asyncio.Event()
    tasks = [asyncio.ensure_future(sit(admission, claim(900), order, first))]
    await asyncio.sleep(0)
    for tokens in (800, 100, 50):
        tasks.append(asyncio.ensure_future(sit(admission, claim(tokens), order, rest)))
        await asyncio.sleep(0)
    assert (order, admission.waiting.requests["t"], admission.waiting.prompt_tokens["t"]) == ([900], 3, 950)
    first.set()
    await asyncio.sleep(0.01)
    assert (order, admission.reserved["a"]) == ([900, 800, 100, 50], 950)
    rest.set()
    await asyncio.gather(*tasks)


async def test_a_full_line_and_lost_patience_are_429(admission: Admission) -> None:
    with await admission.reserve(claim(1000)):
        with pytest.raises(BusyError) as late, await admission.reserve(claim(1, ttl=0.02)):
            pass
        assert late.value.code == "queue_timeout"
        with pytest.raises(BusyError) as full, await admission.reserve(claim(1, most=0)):
            pass
        assert full.value.code == "queue_full"


async def test_one_who_leaves_the_line_makes_room_for_the_next(admission: Admission) -> None:
    order: list[int] = []
    stay = asyncio.Event()
    with await admission.reserve(claim(500)):
        large = asyncio.ensure_future(sit(admission, claim(900), order, stay))
        await asyncio.sleep(0)
        small = asyncio.ensure_future(sit(admission, claim(100), order, stay))
        await asyncio.sleep(0)
        assert order == []
        large.cancel()
        await asyncio.sleep(0.01)
        assert order == [100]
    stay.set()
    await small
    with pytest.raises(asyncio.CancelledError):
        await large


async def test_a_place_given_to_one_who_has_just_left_is_given_on(admission: Admission) -> None:
    stay = asyncio.Event()
    order: list[int] = []
    holder = asyncio.ensure_future(sit(admission, claim(1000), [], stay))
    await asyncio.sleep(0)
    waiters = [asyncio.ensure_future(sit(admission, claim(600), order, stay)) for _ in range(2)]
    await asyncio.sleep(0)
    holder.cancel()
    await asyncio.sleep(0)  # the first in line has been placed, but has not run since
    waiters[0].cancel()
    await asyncio.sleep(0.01)
    stay.set()
    await asyncio.gather(*waiters, holder, return_exceptions=True)
    assert order in ([600], [600, 600])


async def test_a_new_pod_serves_the_line_and_a_lost_pool_ends_it(admission: Admission, fleet: Fleet) -> None:
    with await admission.reserve(claim(1000)):
        waiter = asyncio.ensure_future(sit(admission, claim(10), [], asyncio.Event()))
        await asyncio.sleep(0)
        fleet.replace(Snapshot({}, {POOL: (pod("a"), pod("b"))}))
        await asyncio.sleep(0)
        assert admission.reserved["b"] == 10
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)
        fleet.replace(Snapshot({}, {POOL: (pod("a"),)}))
        waiter = asyncio.ensure_future(sit(admission, claim(10), [], asyncio.Event()))
        await asyncio.sleep(0)
        fleet.replace(Snapshot({}, {}))
        with pytest.raises(NoDecodeEndpointError):
            await waiter


async def test_a_corrected_reservation_stays_unless_its_pod_has_left_or_is_full(
    admission: Admission, fleet: Fleet
) -> None:
    fleet.replace(Snapshot({}, {POOL: (pod("a"), pod("b"))}))
    with await admission.reserve(claim(300)) as seat:
        here, there = (seat.endpoint.uid, "b" if seat.endpoint.uid == "a" else "a")
        seat.settle(200, "f")
        assert (seat.endpoint.uid, dict(admission.reserved)) == (here, {here: 200})
        fleet.replace(Snapshot({}, {POOL: (pod(there),)}))
        seat.settle(100, "f")
        assert (seat.endpoint.uid, dict(admission.reserved)) == (there, {there: 100})
        with await admission.reserve(claim(900)):
            seat.settle(400, "f")  # more than is left anywhere: its KV is held, so it goes on
            assert admission.reserved[there] == 1300


async def test_without_a_pod_that_could_take_it_nobody_waits(admission: Admission, fleet: Fleet) -> None:
    for pods, tried in (
        ((), ()),
        ((pod("a", fingerprint="g"),), ()),
        ((pod("a", capacity=0),), ()),
        ((pod("a"),), ("a",)),
    ):
        fleet.replace(Snapshot({}, {POOL: pods}))
        with pytest.raises(NoDecodeEndpointError), await admission.reserve(claim(1, tried=tried)):
            pass


async def test_nobody_waits_beyond_the_requests_own_time(admission: Admission) -> None:
    soon = asyncio.get_running_loop().time() + 0.02
    with await admission.reserve(claim(1000)), pytest.raises(PhaseTimeoutError) as late:
        await admission.reserve(replace(claim(1), deadline=soon))
    assert late.value.code == "request_timeout"


def resumed(tokens: int, *, tried: tuple[str, ...] = ()) -> Claim:
    return replace(claim(tokens, tried=tried), resumed=True)


async def test_a_resumed_stream_stands_before_those_who_have_not_begun_and_needs_no_place_in_the_line(
    admission: Admission,
) -> None:
    order: list[int] = []
    first, rest = asyncio.Event(), asyncio.Event()
    tasks = [asyncio.ensure_future(sit(admission, claim(1000), order, first))]
    await asyncio.sleep(0)
    for wish in (claim(700), claim(600), replace(resumed(500), task=claim(1, most=0).task)):
        tasks.append(asyncio.ensure_future(sit(admission, wish, order, rest)))
        await asyncio.sleep(0)
    first.set()
    await asyncio.sleep(0.01)
    assert order == [1000, 500]
    rest.set()
    await asyncio.gather(*tasks)
    assert order == [1000, 500, 700, 600]


async def test_a_resumed_stream_that_no_pod_can_take_waits_and_holds_nobody_back(
    admission: Admission, fleet: Fleet
) -> None:
    order: list[int] = []
    stay = asyncio.Event()
    fleet.replace(Snapshot({}, {POOL: (pod("b", fingerprint="g"),)}))
    waiting = asyncio.ensure_future(sit(admission, resumed(300), order, stay))
    await asyncio.sleep(0.01)
    assert admission.waiting.requests["t"] == 1
    facts = replace(claim(200).facts, fingerprints=("g",))
    with await admission.reserve(replace(claim(200), facts=facts)) as seat:
        assert seat.endpoint.uid == "b"
        fleet.replace(Snapshot({}, {POOL: (pod("a"), pod("b", fingerprint="g"))}))
        await asyncio.sleep(0.01)
        assert order == [300]
    stay.set()
    await waiting


async def test_the_only_pod_may_be_met_again_once_it_is_no_suspect_any_more(fleet: Fleet) -> None:
    load = Load(0.3)
    books = Admission(fleet, load, Waiting(Bounds(20, 10_000, 1_000_000), Replicas()))
    load.suspect("a")
    waiting = asyncio.ensure_future(sit(books, resumed(10, tried=("a",)), [], asyncio.Event()))
    await asyncio.sleep(0.1)
    assert (books.waiting.requests["t"], books.reserved) == (1, {})
    await asyncio.sleep(0.6)
    assert (books.waiting.requests["t"], books.reserved) == (0, {"a": 10})
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert not books.reserved


async def test_a_stream_avoids_the_pod_that_had_no_room_and_another_ones_failure_counts_more(
    admission: Admission, fleet: Fleet
) -> None:
    fleet.replace(Snapshot({}, {POOL: (pod("a"), pod("b", capacity=500))}))
    facts = replace(claim(10).facts, avoided=("a",))
    with await admission.reserve(replace(resumed(10), facts=facts)) as seat:
        assert seat.endpoint.uid == "b"
    with await admission.reserve(replace(resumed(10), facts=replace(facts, tried=("b",)))) as seat:
        assert seat.endpoint.uid == "a"


def of(task: str, tokens: int, weight: int = 1) -> Claim:
    limits = Limits(queue_requests=100, queue_ttl=5.0, weight=weight)
    return Claim(Task(task, limits=limits), POOL, DecodeFacts("r", tokens, ("f",)), tokens)


async def test_a_hot_task_does_not_starve_another_and_shares_follow_the_weights(fleet: Fleet) -> None:
    fleet.replace(Snapshot({name: Task(name) for name in "hwl"}, {POOL: (pod("a"),)}))
    books = Admission(fleet, Load(1.0), Waiting(Bounds(1000, 1_000_000, 0), Replicas()))
    order: list[str] = []

    async def ask(wish: Claim) -> None:
        with await books.reserve(wish) as seat:
            order.append(wish.task.name)
            await asyncio.sleep(0)
            seat.spent = wish.facts.tokens

    tasks = [asyncio.ensure_future(ask(of("h", 500))) for _ in range(60)]
    await asyncio.sleep(0)
    tasks += [asyncio.ensure_future(ask(of("w", 500, weight=2))) for _ in range(20)]
    tasks += [asyncio.ensure_future(ask(of("l", 500))) for _ in range(10)]
    await asyncio.gather(*tasks)
    contended = order[4:40]  # four had begun before the others came; later one of them has nothing left
    assert [contended.count(name) for name in "hwl"] == pytest.approx([9, 18, 9], abs=1)
    assert not books.reserved


async def test_room_that_was_reserved_and_not_used_is_not_charged(fleet: Fleet) -> None:
    fleet.replace(Snapshot({name: Task(name) for name in "ab"}, {POOL: (pod("a"),)}))
    books = Admission(fleet, Load(1.0), Waiting(Bounds(1000, 1_000_000, 0), Replicas()))
    used = {"a": 1000, "b": 100}
    order: list[str] = []

    async def ask(name: str) -> None:
        with await books.reserve(of(name, 1000)) as seat:
            order.append(name)
            await asyncio.sleep(0)
            seat.spent = used[name]

    await asyncio.gather(*(ask(name) for name in "ab" * 20))
    assert order[:22].count("b") == 20


async def test_what_was_used_while_there_was_room_for_all_is_held_against_nobody(fleet: Fleet) -> None:
    fleet.replace(Snapshot({name: Task(name) for name in "ab"}, {POOL: (pod("a"),)}))
    books = Admission(fleet, Load(1.0), Waiting(Bounds(1000, 1_000_000, 0), Replicas()))
    order: list[str] = []

    async def ask(name: str) -> None:
        with await books.reserve(of(name, 1000)) as seat:
            order.append(name)
            await asyncio.sleep(0)
            seat.spent = 1000

    for _ in range(50):
        await ask("a")
    order.clear()
    with await books.reserve(of("a", 1000)):
        waiting = [asyncio.ensure_future(ask(name)) for name in "bbbbbbbbbbaaaaaaaaaa"]
        await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    assert order[:10].count("a") in (4, 5)


async def test_ten_thousand_mixed_requests_never_cross_to_another_decoders_pods(fleet: Fleet) -> None:
    pools = {name: tuple(pod(f"{name}-{number}", 100_000) for number in range(3)) for name in ("n/d", "n/e")}
    fleet.replace(Snapshot({}, pools))  # of equal fingerprints, so nothing else keeps them apart
    books = Admission(fleet, Load(1.0), Waiting(Bounds(20, 10_000, 1_000_000), Replicas()))
    for number in range(10_000):
        name = ("n/d", "n/e")[number * 7 % 3 % 2]
        wish = replace(claim(100), decoder=name, facts=DecodeFacts(str(number), 100, ("f",)))
        with await books.reserve(wish) as seat:
            assert seat.endpoint in pools[name]
            seat.settle(120, "f")
            assert seat.endpoint in pools[name]
    assert not books.reserved
