"""Adapters that come and go while an engine runs: what requests may name, what is loaded, and when it is dropped."""

from __future__ import annotations

from pathlib import Path

import pytest

from sunfleet_api import wire
from sunfleet_api.pooling import FAILURES, REQUESTS, Failure, Request, Wanted, WantedAdapter, folder
from sunfleet_worker.adapters.depot import Depot
from sunfleet_worker.adapters.keeper import Keeper, LoadError
from sunfleet_worker.adapters.shelf import Shelf
from sunfleet_worker.errors import UnavailableError
from sunfleet_worker.frontend.standing import Standing

MATHS = WantedAdapter(name="team.maths-1", uri="hf://acme/maths@c", digest="sha256:aa")
MOUNTED = WantedAdapter(name="team.code-1", uri="pvc://a/code", digest="sha256:bb", path="/weights/claims/a/code")


class Engine:
    """Remembers what it holds; refuses what is in ``refused``, and fails over what is in ``broken``."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}
        self.refused: set[str] = set()
        self.broken: set[str] = set()

    async def load(self, name: str, path: Path) -> None:
        self._fail(name)
        if name in self.refused:
            raise LoadError("size mismatch")
        self.held[name] = str(path)

    async def drop(self, name: str) -> None:
        self._fail(name)
        self.held.pop(name, None)

    def _fail(self, name: str) -> None:
        if name in self.broken:
            raise RuntimeError("out of memory")


class World:
    def __init__(self, root: Path) -> None:
        self.root, self.engine, self.now = root, Engine(), 0.0
        self.standing = Standing()
        self.standing.reason = ""
        self.shelf = Shelf(self.standing)
        self.keeper = Keeper(self.engine, Depot(root), self.shelf, clock=lambda: self.now)

    async def want(self, *adapters: WantedAdapter) -> None:
        self.keeper.want(Wanted(adapters=adapters))
        await self.keeper.step()

    def states(self) -> dict[str, str]:
        return {one.name: one.reason or one.state for one in self.keeper.held().adapters}

    def serves(self, name: str) -> bool:
        try:
            with self.shelf.using(name):
                return True
        except UnavailableError as refusal:
            return refusal.code != "sun_adapter_not_loaded"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_it_asks_for_the_files_and_loads_them_once_they_are_whole(world: World) -> None:
    await world.want(MATHS)
    assert (world.states(), world.serves(MATHS.name)) == ({MATHS.name: "Downloading"}, False)
    asked = world.root / REQUESTS / "sha256-aa.json"
    assert Request.model_validate_json(asked.read_text()) == Request(uri=MATHS.uri, digest=MATHS.digest)
    (world.root / folder(MATHS.digest)).mkdir()
    await world.keeper.step()
    assert (world.states(), world.serves(MATHS.name)) == ({MATHS.name: "Loaded"}, True)
    assert world.engine.held == {MATHS.name: str(world.root / "sha256-aa")}


async def test_a_mounted_one_is_loaded_where_it_lies(world: World) -> None:
    await world.want(MOUNTED)
    assert world.engine.held == {MOUNTED.name: MOUNTED.path}
    assert not (world.root / REQUESTS).exists()


async def test_why_a_download_fails_is_told_until_it_succeeds(world: World) -> None:
    (world.root / FAILURES).mkdir()
    failure = Failure(reason="AuthenticationFailed", message="401")
    (world.root / FAILURES / "sha256-aa.json").write_text(failure.model_dump_json())
    await world.want(MATHS)
    assert world.states() == {MATHS.name: "AuthenticationFailed"}
    (world.root / folder(MATHS.digest)).mkdir()
    await world.keeper.step()
    assert world.states() == {MATHS.name: "Loaded"}


async def test_what_the_engine_refuses_is_tried_again_later(world: World) -> None:
    world.engine.refused.add(MOUNTED.name)
    await world.want(MOUNTED)
    assert (world.states(), world.serves(MOUNTED.name)) == ({MOUNTED.name: "AdapterFailed"}, False)
    world.engine.refused.clear()
    await world.keeper.step()
    assert world.states() == {MOUNTED.name: "AdapterFailed"}
    world.now += 30
    await world.keeper.step()
    assert world.states() == {MOUNTED.name: "Loaded"}


async def test_one_in_use_takes_no_new_requests_and_is_dropped_after_the_last(world: World) -> None:
    await world.want(MOUNTED)
    with world.shelf.using(MOUNTED.name):
        await world.want()
        assert not world.serves(MOUNTED.name)
        assert MOUNTED.name in world.engine.held
    await world.keeper.step()
    assert world.engine.held == {}


async def test_files_that_nobody_needs_any_more_are_let_go(world: World) -> None:
    (world.root / folder(MATHS.digest)).mkdir()
    twin = MATHS.model_copy(update={"name": "other.maths-1"})
    (world.root / REQUESTS).mkdir()
    asked = world.root / REQUESTS / "sha256-aa.json"
    asked.write_text("{}")
    await world.want(MATHS, twin)
    await world.want(twin)
    assert asked.exists(), "another adapter has the same files"
    await world.want()
    assert not asked.exists()


async def test_hearing_the_same_wish_again_changes_nothing(world: World) -> None:
    await world.want(MOUNTED)
    known = MOUNTED.model_copy(update={"uri": "", "path": ""})  # named only to be kept
    await world.want(known)
    assert (world.states(), world.serves(MOUNTED.name)) == ({MOUNTED.name: "Loaded"}, True)


def test_the_base_beneath_the_adapters_answers_the_self_check_alone(world: World) -> None:
    assert not world.serves(wire.ENGINE_BASE_MODEL)
    world.standing.reason = "not yet"
    assert world.serves(wire.ENGINE_BASE_MODEL)


async def test_whatever_the_engine_raises_over_one_adapter_the_others_go_on(world: World) -> None:
    other = MOUNTED.model_copy(update={"name": "team.law-1", "digest": "sha256:cc"})
    world.engine.broken.add(MOUNTED.name)
    await world.want(MOUNTED, other)
    assert world.states() == {MOUNTED.name: "AdapterFailed", other.name: "Loaded"}
    assert world.keeper.held().adapters[0].message == "RuntimeError: out of memory"
    world.engine.broken.clear()
    world.now += 30
    await world.keeper.step()
    assert world.states() == {MOUNTED.name: "Loaded", other.name: "Loaded"}


async def test_one_that_cannot_be_dropped_is_tried_again_and_holds_up_no_other(world: World) -> None:
    other = MOUNTED.model_copy(update={"name": "team.law-1", "digest": "sha256:cc"})
    await world.want(MOUNTED)
    world.engine.broken.add(MOUNTED.name)
    await world.want(other)
    assert world.states() == {other.name: "Loaded"}
    assert MOUNTED.name in world.engine.held
    world.engine.broken.clear()
    await world.keeper.step()
    assert world.engine.held.keys() == {other.name}


async def test_a_disk_that_refuses_a_request_is_told(world: World) -> None:
    (world.root / REQUESTS).write_text("a file where the folder should be")
    await world.want(MATHS, MOUNTED)
    assert world.states() == {MATHS.name: "AdapterFailed", MOUNTED.name: "Loaded"}


async def test_files_of_the_first_are_let_go_although_its_successor_had_one_before_it_had_left(world: World) -> None:
    (world.root / folder(MATHS.digest)).mkdir()
    await world.want(MATHS)
    asked = world.root / REQUESTS / "sha256-aa.json"
    asked.parent.mkdir(exist_ok=True)
    asked.write_text("{}")
    with world.shelf.using(MATHS.name):
        await world.want(MATHS.model_copy(update={"digest": "sha256:b2"}))
        await world.want(MATHS.model_copy(update={"digest": "sha256:b3"}))
    await world.keeper.step()
    assert not asked.exists()
