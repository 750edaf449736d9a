"""What is looked up once for each snapshot is what a look at the snapshot says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunfleet_api.wire import EngineInfo
from sunfleet_router.fleet.snapshot import Endpoint, Route, Snapshot, Task
from sunfleet_router.fleet.ways import Ways

POD = Endpoint("p", "pod", "10.0.0.1", 8000, "prefill", "f")
ROUTE = Route("r1", 100, "pool", "salt", (POD,))


def decode(uid: str, block: int, longest: int) -> Endpoint:
    info = EngineInfo(role="decode", kv_capacity_tokens=9999, block_size=block, max_model_len=longest)
    return Endpoint(uid, uid, "10.0.0.2", 8000, "decode", "f", info=info)


@given(
    sizes=st.lists(st.tuples(st.sampled_from([1, 16, 128]), st.integers(1, 5000)), max_size=4),
    silent=st.booleans(),
    tokens=st.integers(1, 6000),
)
def test_the_room_is_that_of_the_pod_that_needs_most(sizes: list[tuple[int, int]], silent: bool, tokens: int) -> None:
    told = [decode(str(number), *size) for number, size in enumerate(sizes)]
    pool = (*told, *([replace(POD, uid="silent")] if silent else []))
    snapshot = Snapshot(tasks={"t": Task("t", routes=(ROUTE,))}, pools={"pool": pool})
    way = Ways().of(snapshot, "t", ROUTE)
    assert way.room(tokens) == max([pod.room(tokens) for pod in told], default=tokens)


def test_a_request_gets_the_pods_of_now_and_none_of_a_revision_that_is_gone() -> None:
    ways, other = Ways(), replace(POD, uid="new", fingerprint="g")
    first = Snapshot(tasks={"t": Task("t", routes=(ROUTE,))})
    assert ways.of(first, "t", ROUTE).prefill == (POD,)
    later = Snapshot(tasks={"t": Task("t", routes=(replace(ROUTE, prefill=(other,)),))})
    way = ways.of(later, "t", ROUTE)
    assert (way.prefill, way.fingerprints) == ((other,), frozenset({"g"}))
    assert ways.of(first, "t", ROUTE).prefill == (POD,), "a request that began with it"


@pytest.mark.parametrize("routes", [(), (replace(ROUTE, revision="r2"),), (replace(ROUTE, salt="another"),)])
def test_what_is_not_routed_any_more_has_no_pods(routes: tuple[Route, ...]) -> None:
    assert Ways().of(Snapshot(tasks={"t": Task("t", routes=routes)}), "t", ROUTE).prefill == ()
