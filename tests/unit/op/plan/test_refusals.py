"""Writes that the API server refuses: told once, tried again, and never in a circle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sunfleet_operator.cluster import RefusedError
from sunfleet_operator.types import MODEL, Key
from sunfleet_optest.objects import decoder, model
from sunfleet_optest.world import World

MATHS = Key(MODEL, "team", "maths")


@pytest.fixture
async def world() -> World:
    made = World()
    made.store.put(decoder())
    made.store.put(model())
    await made.settle()
    return made


def _refuse(start: str) -> Callable[[str], None]:
    def refuse(write: str) -> None:
        if write.startswith(start):
            raise RefusedError(write, 403, "a policy forbids it")

    return refuse


async def _try(world: World, times: int) -> list[str]:
    """The writes of some attempts; each of them ends in the refusal."""
    before = len(world.store.writes)
    for _ in range(times):
        with pytest.raises(RefusedError):
            await world.reconciler()(MATHS)
    return world.store.writes[before:]


async def _until_refused(world: World) -> None:
    for _ in range(20):
        world.controllers()
        try:
            await world.reconciler()(MATHS)
        except RefusedError:
            return
    raise AssertionError("never refused")


async def test_a_refusal_after_the_status_does_not_make_the_status_flap(world: World) -> None:
    world.store.before_write = _refuse("delete Deployment")
    world.store.put(model(uri="pvc://models/adapters/maths2"))
    await _until_refused(world)
    told = world.condition("SunModel", "maths", "Progressing")
    assert (told["reason"], "a policy forbids it" in told["message"]) == ("ChildRefused", True)
    # Each write would be a watch event, and each event another attempt at once, whatever the backoff says.
    assert await _try(world, 3) == []
    assert _warnings(world) == ["ChildRefused"]


async def test_once_the_refusal_is_lifted_the_status_says_so(world: World) -> None:
    world.store.before_write = _refuse("delete Deployment")
    world.store.put(model(uri="pvc://models/adapters/maths2"))
    await _until_refused(world)
    world.store.before_write = lambda _: None
    assert await world.reconciler()(MATHS) is not None  # due again: nothing else would wake it
    await world.settle()
    assert world.condition("SunModel", "maths", "Ready")["reason"] == "Ready"


def _warnings(world: World) -> list[Any]:
    return [event["reason"] for event in world.store.all("Event") if event["type"] == "Warning"]
