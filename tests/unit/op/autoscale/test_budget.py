"""One budget, many wishes: shares by weight, and never a pod too many at any moment."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunfleet_operator.autoscale import budget
from sunfleet_operator.autoscale.budget import Party
from sunfleet_operator.autoscale.state import Pods

GPU = "nvidia.com/gpu"


def party(key: str, wanted: int, wish: int, **more: object) -> Party:
    each = {GPU: more.pop("gpus", 1)}
    terminating = more.pop("terminating", 0)
    pods = Pods(wanted, ready=wanted, live=wanted, terminating=terminating, each=each)  # type: ignore[arg-type]
    return Party(key, pods, wish, **more)  # type: ignore[arg-type]


def shares(limit: int, *parties: Party) -> dict[str, int]:
    return budget.fair(parties, {GPU: limit})


def step(limit: int, *parties: Party) -> dict[str, int]:
    return budget.now(parties, {GPU: limit})


def test_whoever_fits_gets_everything() -> None:
    assert shares(10, party("a", 1, 4), party("pool", 1, 3)) == {"a": 4, "pool": 3}


def test_what_is_short_is_divided_by_weight() -> None:
    assert shares(8, party("a", 1, 9), party("b", 1, 9)) == {"a": 4, "b": 4}
    assert shares(8, party("a", 1, 9, weight=3), party("b", 1, 9, weight=1)) == {"a": 6, "b": 2}


def test_what_one_does_not_need_the_others_get() -> None:
    assert shares(8, party("a", 1, 1), party("b", 1, 9), party("c", 1, 9)) == {"a": 1, "b": 4, "c": 3}


def test_floors_come_before_wishes() -> None:
    assert shares(4, party("a", 1, 9, floor=1, weight=100), party("b", 1, 3, floor=3)) == {"a": 1, "b": 3}


def test_pods_of_two_gpus_count_twice() -> None:
    assert shares(8, party("a", 1, 9, gpus=2), party("b", 1, 9)) == {"a": 2, "b": 4}


def test_pods_without_the_resource_cost_nothing() -> None:
    assert shares(2, party("cpu", 1, 9, gpus=0), party("b", 1, 9)) == {"cpu": 9, "b": 2}


def test_pods_that_are_held_are_taken_from_nobody() -> None:
    held = party("held", 5, 5, keeps=True)
    assert shares(8, held, party("b", 1, 9, weight=100)) == {"held": 5, "b": 3}


def test_growth_waits_for_pods_that_still_terminate() -> None:
    a, b = party("a", 2, 2, terminating=2), party("b", 4, 8)
    assert step(8, a, b) == {"a": 2, "b": 4}
    assert step(8, party("a", 2, 2), b) == {"a": 2, "b": 6}


def test_growth_waits_for_pods_that_are_to_go_but_have_not_yet() -> None:
    assert step(8, party("a", 8, 4), party("b", 0, 4)) == {"a": 4, "b": 0}


def test_a_starving_task_gets_its_share_from_one_that_has_more() -> None:
    assert step(8, party("a", 8, 8), party("b", 0, 8)) == {"a": 4, "b": 0}


def test_a_lowered_limit_shrinks_and_lets_nobody_grow() -> None:
    assert step(4, party("a", 6, 9), party("b", 1, 9)) == {"a": 2, "b": 1}


def test_a_roll_out_gets_room_only_from_what_is_left() -> None:
    a = replace(party("a", 2, 2), pods=Pods(2, live=2, each={GPU: 1}, surge=1))
    b = replace(a, key="b")
    assert budget.surges([a, b], {GPU: 5}, {"a": 2, "b": 2}) == {"a": 1, "b": 0}
    assert budget.surges([a, b], {GPU: 6}, {"a": 3, "b": 2}) == {"a": 1, "b": 0}
    running = replace(a, pods=Pods(2, live=3, each={GPU: 1}, surge=1))
    assert budget.surges([running, b], {GPU: 5}, {"a": 2, "b": 2}) == {"a": 1, "b": 0}


# A cluster that starts pods at once and ends them when it pleases ----------------------------------------


@dataclass
class Cluster:
    """Pods by owner; what terminates stays until it is collected."""

    each: dict[str, int]
    live: dict[str, int] = field(default_factory=dict)
    terminating: dict[str, int] = field(default_factory=dict)

    def scale(self, counts: dict[str, int]) -> None:
        for key, count in counts.items():
            gone = max(0, self.live[key] - count)
            self.terminating[key] += gone
            self.live[key] = count

    def gpus(self) -> int:
        return sum((self.live[key] + self.terminating[key]) * each for key, each in self.each.items())


names = ("a", "b", "c", "pool")


@given(data=st.data())
def test_at_no_moment_are_there_more_pods_than_the_budget_allows(data: st.DataObject) -> None:
    each = {key: data.draw(st.integers(0, 3), f"GPUs of a pod of {key}") for key in names}
    cluster = Cluster(each, dict.fromkeys(names, 0), dict.fromkeys(names, 0))
    limit = data.draw(st.integers(0, 24), "limit")
    for _ in range(data.draw(st.integers(1, 12), "steps")):
        parties = [
            Party(
                key,
                Pods(cluster.live[key], live=cluster.live[key], terminating=cluster.terminating[key],
                     each={GPU: each[key]}),
                wish=data.draw(st.integers(0, 12), f"wish of {key}"),
                floor=data.draw(st.integers(0, 2), f"floor of {key}"),
                weight=data.draw(st.floats(0.1, 100), f"weight of {key}"),
                keeps=data.draw(st.booleans(), f"{key} is held"),
            )
            for key in names
        ]  # fmt: skip
        cluster.scale(budget.now(parties, {GPU: limit}))
        assert cluster.gpus() <= limit or not any(each.values())
        for key in names:
            cluster.terminating[key] -= data.draw(st.integers(0, cluster.terminating[key]), f"collected of {key}")


@given(
    wishes=st.lists(st.integers(0, 30), min_size=2, max_size=6), limit=st.integers(0, 40), weight=st.floats(0.5, 8)
)  # fmt: skip
def test_a_fair_share_wastes_nothing_and_gives_nobody_more_than_wished(
    wishes: list[int], limit: int, weight: float
) -> None:
    parties = [party(str(number), 0, wish, weight=1 + number * weight) for number, wish in enumerate(wishes)]
    given_out = shares(limit, *parties)
    assert all(given_out[str(number)] <= wish for number, wish in enumerate(wishes))
    assert sum(given_out.values()) == min(limit, sum(wishes))


@pytest.mark.parametrize("limit", [4, 7, 12])
def test_with_patience_everybody_reaches_the_fair_share(limit: int) -> None:
    wishes = {"a": 8, "b": 8, "c": 2, "pool": 6}
    cluster = Cluster(dict.fromkeys(names, 1), {**dict.fromkeys(names, 0), "a": limit}, dict.fromkeys(names, 0))

    def parties() -> list[Party]:
        return [party(key, cluster.live[key], wishes[key], terminating=cluster.terminating[key]) for key in names]

    for _ in range(6):
        cluster.scale(step(limit, *parties()))
        cluster.terminating = dict.fromkeys(names, 0)
    assert cluster.live == budget.fair(parties(), {GPU: limit})
