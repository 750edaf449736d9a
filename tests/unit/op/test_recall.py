"""Reads that are not made twice, and looks that are not needed: what is remembered, for how long, and what ends it."""

from __future__ import annotations

from typing import Any

import pytest

from sunfleet_api import names
from sunfleet_operator.echoes import Echoes
from sunfleet_operator.recall import Recalling
from sunfleet_operator.types import Json, Key, Ref
from sunfleet_optest.objects import decoder, model
from sunfleet_optest.store import Store
from sunfleet_optest.world import World

SECONDS = 60.0
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "base-decode", "namespace": "team", "labels": {names.LABEL_MODEL: "1"}},
    "spec": {"clusterIP": "None"},
}
RECORD = {**SERVICE, "apiVersion": "apps/v1", "kind": "ControllerRevision", "data": {"record": "weights"}}


class Counting(Store):
    """Counts reads."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    async def get(self, kind: str, namespace: str, name: str) -> Json | None:
        self.reads.append(f"get {kind}")
        return await super().get(kind, namespace, name)

    def taken(self) -> list[str]:
        """Reads since the last call."""
        found, self.reads = self.reads, []
        return found

    async def list(self, kind: str, *args: Any, **more: Any) -> Any:
        self.reads.append(f"list {kind}")
        return await super().list(kind, *args, **more)


@pytest.fixture
def clock() -> list[float]:
    return [0.0]


@pytest.fixture
def store() -> Counting:
    return Counting()


@pytest.fixture
def recalling(store: Counting, clock: list[float]) -> Recalling:
    return Recalling(store, SECONDS, clock=lambda: clock[0])


async def _get(recalling: Recalling, kind: str = "Service") -> Json | None:
    return await recalling.get(kind, "team", "base-decode")


async def test_what_was_read_or_written_is_not_read_again_for_a_while(
    store: Counting, recalling: Recalling, clock: list[float]
) -> None:
    await recalling.apply(SERVICE, "m")
    assert await _get(recalling) == store.one("Service", "base-decode")
    assert store.taken() == []
    clock[0] = SECONDS
    await _get(recalling)
    assert store.taken() == ["get Service"]
    await _get(recalling)
    assert store.taken() == []


async def test_what_is_missing_is_asked_for_again(store: Counting, recalling: Recalling) -> None:
    assert await _get(recalling) is None
    store.put(SERVICE)
    assert await _get(recalling) is not None


async def test_what_nobody_watches_and_others_write_is_always_read(store: Counting, recalling: Recalling) -> None:
    for _ in range(2):
        await recalling.get("ConfigMap", "team", "prompts")
        await recalling.get("Namespace", "", "team")
        await recalling.list("Event", "team", fields={"reason": "FailedCreate"})
        await recalling.list("Pod", "team", labels={"app.kubernetes.io/managed-by": "sunfleet"})
    assert len(store.taken()) == 8


async def test_what_is_written_is_known_and_so_is_what_is_deleted(store: Counting, recalling: Recalling) -> None:
    for name in ("1", "2"):
        await recalling.list("ControllerRevision", "team", labels={names.LABEL_MODEL: name})
    store.taken()
    await recalling.apply(RECORD, "m")
    found = await recalling.list("ControllerRevision", "team", labels={names.LABEL_MODEL: "1"})
    assert [live["metadata"]["name"] for live in found] == ["base-decode"]
    assert await recalling.list("ControllerRevision", "team", labels={names.LABEL_MODEL: "2"}) == ()
    await recalling.delete(Ref.of("ControllerRevision", store.one("ControllerRevision", "base-decode")))
    assert await recalling.list("ControllerRevision", "team", labels={names.LABEL_MODEL: "1"}) == ()
    assert store.taken() == []
    assert await _get(recalling, "ControllerRevision") is None


async def test_a_write_that_failed_may_have_been_carried_out(store: Counting, recalling: Recalling) -> None:
    await recalling.apply(SERVICE, "m")

    def fail(_: str) -> None:
        raise ConnectionError

    store.before_write = fail
    with pytest.raises(ConnectionError):
        await recalling.apply(SERVICE, "m")
    await _get(recalling)
    assert store.taken() == ["get Service"]


async def test_objects_that_are_gone_leave_nothing_behind(
    store: Counting, recalling: Recalling, clock: list[float]
) -> None:
    await recalling.apply(SERVICE, "m")
    await recalling.list("ControllerRevision", "team", labels={names.LABEL_MODEL: "1"})
    clock[0] = SECONDS
    await recalling.get("Service", "team", "another")
    assert recalling.remembered == 0


MATHS = Key("SunModel", "team", "maths")


def _at(version: str) -> Json:
    return {"metadata": {"name": "maths", "namespace": "team", "resourceVersion": version}}


def test_the_event_of_a_status_of_ours_is_an_echo_once() -> None:
    echoes = Echoes()
    echoes.expect(MATHS, _at("7"))
    assert echoes.heard(MATHS, _at("7"), gone=False)
    assert not echoes.heard(MATHS, _at("7"), gone=False)


@pytest.mark.parametrize(("version", "gone"), [("8", False), ("7", True)])
def test_what_somebody_else_did_is_no_echo_and_neither_is_what_comes_after_it(version: str, gone: bool) -> None:
    echoes = Echoes()
    echoes.expect(MATHS, _at("7"))
    assert not echoes.heard(MATHS, _at(version), gone=gone)
    assert not echoes.heard(MATHS, _at("7"), gone=False)


async def test_a_status_that_leaves_something_to_do_is_looked_at_again() -> None:
    """The one that says the rest is done is not. In between every object still comes to rest."""
    world, settled = World(), list[Key]()
    world.settled = lambda key, _: settled.append(key)
    world.store.put(decoder())
    world.store.put(model())
    await world.settle()
    assert set(settled) == {Key("SharedDecoder", "team", "base"), MATHS}


async def test_only_objects_that_were_not_told_to_be_at_rest_need_another_look() -> None:
    """Reconciling nothing but what changed since, echoes left out, ends where reconciling everything does."""
    world, rest = World(), dict[Key, str]()
    world.settled = lambda key, live: rest.update({key: live["metadata"]["resourceVersion"]})
    world.store.put(decoder())
    world.store.put(model())
    for _ in range(12):
        moved = world.controllers()
        for key in world.served():
            version = world.store.one(key.kind, key.name)["metadata"]["resourceVersion"]
            if moved or rest.get(key) != version:
                await world.reconciler()(key)
    writes = len(world.store.writes)
    await world.settle()
    assert len(world.store.writes) == writes
    assert world.condition("SunModel", "maths", "Ready")["status"] == "True"
