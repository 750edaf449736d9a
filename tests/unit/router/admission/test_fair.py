"""Fair share of a decoder between tasks: simulations and properties of the counters, and the line that uses them."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sunfleet_router.admission.claim import Claim
from sunfleet_router.admission.line import Line, Waiter
from sunfleet_router.fleet.snapshot import Limits, Task
from sunfleet_router.policies.decode import DecodeFacts
from sunfleet_router.policies.fair import FairShare

LARGEST = 100  # tokens of one request
FEWER = settings(max_examples=50)


@dataclass
class Pool:
    """A decoder that serves one request after the other, as the counters say."""

    share: FairShare = field(default_factory=FairShare)
    waiting: dict[str, deque[int]] = field(default_factory=dict)
    served: Counter[str] = field(default_factory=Counter)
    weights: dict[str, int] = field(default_factory=dict)

    def ask(self, task: str, tokens: int) -> None:
        if task not in self.waiting:
            self.share.join(task, self.waiting)
        self.waiting.setdefault(task, deque()).append(tokens)

    def serve(self) -> str:
        task = min(self.waiting, key=self.share.level)
        tokens = self.waiting[task].popleft()
        self.share.charge(task, tokens, self.weights.get(task, 1))
        self.served[task] += tokens
        if not self.waiting[task]:
            del self.waiting[task]
            if not self.waiting:
                self.share.rest(task)
        return task


SERVE: st.SearchStrategy[bool] = st.booleans()
REQUESTS = st.lists(st.integers(1, LARGEST), min_size=40, max_size=80)


@FEWER
@given(REQUESTS, REQUESTS, st.integers(1, 5), st.integers(1, 5))
def test_two_tasks_that_always_wait_are_served_by_weight_whatever_the_sizes_of_their_requests(
    first: list[int], second: list[int], weight: int, other: int
) -> None:
    pool = Pool(weights={"a": weight, "b": other})
    for tokens in first:
        pool.ask("a", tokens)
    for tokens in second:
        pool.ask("b", tokens)
    while len(pool.waiting) == 2:
        pool.serve()
        gap = pool.served["a"] / weight - pool.served["b"] / other
        assert -LARGEST / other - 1e-6 <= gap <= LARGEST / weight + 1e-6


@FEWER
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, LARGEST)), max_size=120), st.data())
def test_nothing_idles_while_somebody_waits_and_everyone_is_served(
    asked: list[tuple[str, int]], data: st.DataObject
) -> None:
    pool = Pool(weights={"a": 3})
    for task, tokens in asked:
        pool.ask(task, tokens)
        if data.draw(SERVE) and pool.waiting:
            pool.serve()
    while pool.waiting:
        pool.serve()
    wanted: Counter[str] = Counter()
    for task, tokens in asked:
        wanted[task] += tokens
    assert pool.served == wanted


def test_a_hot_task_cannot_starve_one_that_asks_now_and_then() -> None:
    pool = Pool()
    for _ in range(1000):
        pool.ask("hot", LARGEST)
    waits = []
    for _ in range(50):
        for _ in range(5):
            pool.serve()
        pool.ask("rare", 10)
        waits.append(next(turn for turn in range(1, 10) if pool.serve() == "rare"))
    assert max(waits) <= 2


def test_time_spent_idle_is_no_credit() -> None:
    pool = Pool()
    for _ in range(100):
        pool.ask("busy", 50)
        pool.serve()
    for _ in range(20):
        pool.ask("busy", 50)
        pool.ask("idle", 50)
    turns = [pool.serve() for _ in range(20)]
    assert turns.count("idle") == 10


def test_what_was_used_while_nobody_else_waited_is_not_held_against_a_task() -> None:
    pool = Pool()
    for _ in range(200):
        pool.ask("early", 50)
    for _ in range(100):
        pool.serve()
    for _ in range(100):
        pool.ask("late", 50)
    assert [pool.serve() for _ in range(40)].count("early") == 20


def test_what_was_reserved_and_not_used_is_given_back() -> None:
    share = FairShare()
    for task in ("a", "b"):
        share.join(task, ())
        share.charge(task, 1000, 1)
    share.charge("a", -900, 1)
    assert (share.level("a"), share.level("b")) == (100, 1000)


def test_counters_of_tasks_that_are_gone_or_level_take_no_memory() -> None:
    share = FairShare()
    for number in range(100):
        share.join(f"t{number}", ())
        share.charge(f"t{number}", 10, 1)
        share.rest(f"t{number}")
    assert not share._charged
    share.charge("a", 500, 1)
    share.keep(["b"])
    assert not share._charged


# The line


def waiter(task: str, *, tokens: int = 10, priority: int = 0, kv: str = "f", resumed: bool = False) -> Waiter:
    loop = asyncio.get_running_loop()
    facts = DecodeFacts("r", tokens, frozenset({kv}))
    limits = Limits(weight=1)
    claim = Claim(Task(task, limits=limits), "n/d", facts, tokens, priority=priority, resumed=resumed)
    return Waiter(claim, loop.create_future())


async def drained(line: Line, share: FairShare) -> list[tuple[str, int]]:
    order = []
    while (one := line.next(frozenset())) is not None:
        line.leave(one)
        share.charge(one.claim.task.name, one.claim.facts.tokens, 1)
        order.append((one.claim.task.name, one.claim.priority))
    assert not line
    return order


async def test_a_lower_priority_number_is_served_first_and_within_a_class_the_tasks_take_turns() -> None:
    share = FairShare()
    line = Line(share)
    for task, priority in (("a", 5), ("a", 0), ("a", 0), ("b", 0), ("b", 5), ("b", -1)):
        line.join(waiter(task, priority=priority))
    assert await drained(line, share) == [("b", -1), ("a", 0), ("a", 0), ("b", 0), ("a", 5), ("b", 5)]


async def test_one_that_waits_holds_back_only_those_who_could_take_its_room() -> None:
    line = Line(FairShare())
    large, same, other = waiter("a"), waiter("b"), waiter("c", kv="g")
    for one in (large, same, other):
        line.join(one)
    assert line.next(frozenset()) is large
    assert line.next({"f"}) is other
    assert line.next({"f", "g"}) is None


@pytest.mark.parametrize("resumed", [False, True])
async def test_one_who_leaves_from_the_middle_leaves_the_others_in_order(resumed: bool) -> None:
    line = Line(FairShare())
    ones = [waiter("a", resumed=resumed) for _ in range(3)]
    for one in ones:
        line.join(one)
    line.leave(ones[1])
    line.leave(ones[1])
    if resumed:
        assert list(line.resumed) == [ones[0], ones[2]]
    else:
        assert line.next(frozenset()) is ones[0]
        line.leave(ones[0])
        assert line.next(frozenset()) is ones[2]
