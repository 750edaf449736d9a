"""Which pod holds which adapter: everybody a first copy, room beyond that to the busiest, and no move without need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from sunfleet_operator.plan.placement import Placed, Seat, place


def _place(
    loads: Mapping[str, float | None], seats: Mapping[str, set[str]], *, capacity: int = 4, copies: int = 1
) -> Placed:
    return place(loads, [Seat(pod, frozenset(held)) for pod, held in seats.items()], capacity=capacity, copies=copies)


def _count(placed: Placed) -> Counter[str]:
    return Counter(name for held in placed.by_pod.values() for name in held)


def test_idle_adapters_get_their_copies_and_no_more() -> None:
    placed = _place({"a": 0.0, "b": 0.0}, {"p1": set(), "p2": set(), "p3": set()}, copies=2)
    assert _count(placed) == {"a": 2, "b": 2}


def test_where_nothing_is_known_room_is_used_evenly() -> None:
    placed = _place({"a": None, "b": None}, {"p1": set(), "p2": set()})
    assert placed.by_pod == {"p1": {"a", "b"}, "p2": {"a", "b"}}


def test_room_beyond_the_first_copy_goes_to_the_busiest() -> None:
    placed = _place({"hot": 90.0, "warm": 5.0, "cold": 0.0}, {"p1": set(), "p2": set(), "p3": set()}, capacity=2)
    assert _count(placed) == {"hot": 3, "warm": 2, "cold": 1}


def test_the_busy_are_spread() -> None:
    placed = _place({"a": 50.0, "b": 50.0, "c": 1.0, "d": 1.0}, {"p1": set(), "p2": set()}, capacity=2)
    assert all(len(held & {"a", "b"}) == 1 for held in placed.by_pod.values())


def test_what_is_loaded_stays_where_it_is() -> None:
    held = {"p1": {"a", "b", "c"}, "p2": {"d"}}
    assert _place(dict.fromkeys("abcd", 0.0), held).by_pod == held


def test_a_new_adapter_takes_the_room_of_a_spare_copy_and_moves_nothing_else() -> None:
    placed = _place({"a": 0.0, "b": 0.0, "c": 0.0}, {"p1": {"a", "b"}, "p2": {"a"}}, capacity=2)
    assert placed.by_pod == {"p1": {"a", "b"}, "p2": {"a", "c"}}
    placed = _place({"a": 0.0, "b": 0.0, "c": 0.0}, {"p1": {"a", "b"}, "p2": {"a", "b"}}, capacity=2)
    assert _count(placed)["c"] == 1


def test_without_room_the_oldest_stay() -> None:
    placed = _place({"old": 0.0, "older": 0.0, "new": 9.0}, {"p1": set()}, capacity=2)
    assert placed == Placed({"p1": frozenset({"old", "older"})}, ("new",))


def test_without_pods_nobody_is_left_out() -> None:
    assert _place({"a": None}, {}) == Placed({})


def test_five_hundred_adapters_fit_on_eight_pods() -> None:
    placed = _place(dict.fromkeys(map(str, range(500)), 0.0), {f"p{number}": set() for number in range(8)}, capacity=64)
    assert (sum(_count(placed).values()), placed.left_out) == (500, ())
    assert max(len(held) for held in placed.by_pod.values()) <= 64


_NAMES = st.sampled_from([f"a{number}" for number in range(8)])


@given(
    st.dictionaries(_NAMES, st.none() | st.floats(0, 100)),
    st.dictionaries(st.sampled_from(["p1", "p2", "p3"]), st.sets(_NAMES)),
    st.integers(1, 5),
    st.integers(1, 3),
)
def test_every_adapter_for_which_there_is_room_is_somewhere_and_no_pod_holds_too_much(
    loads: dict[str, float | None], seats: dict[str, set[str]], capacity: int, copies: int
) -> None:
    placed = _place(loads, seats, capacity=capacity, copies=copies)
    assert set(placed.by_pod) == set(seats)
    assert all(len(held) <= capacity for held in placed.by_pod.values())
    room = min(len(loads), capacity * len(seats))
    assert len(_count(placed)) == room
    if seats:
        assert set(placed.left_out) == set(loads) - set(_count(placed))
    again = _place(loads, {pod: set(held) for pod, held in placed.by_pod.items()}, capacity=capacity, copies=copies)
    assert again.by_pod == placed.by_pod, "a second look moves something"
