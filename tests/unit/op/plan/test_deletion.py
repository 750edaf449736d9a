"""When a decoder may go, and whose use of it counts."""

from __future__ import annotations

from typing import Any

import pytest

from sunfleet_api import names
from sunfleet_optest.objects import decoder, model
from sunfleet_optest.world import World

PLACE = ("SharedDecoder", "team", "base")
ABROAD = model("maths", "other", uri="hf://a/maths@" + "a" * 40, decoderRef={"name": "base", "namespace": "team"})
EVERYONE = {"namespaces": {"from": "All"}}


@pytest.fixture
def world() -> World:
    return World()


async def _use(world: World, **spec: Any) -> None:
    world.store.put(decoder(**spec))
    world.store.put(ABROAD)
    await world.settle()


async def test_whoever_may_not_attach_cannot_hold_a_decoder_either(world: World) -> None:
    await _use(world)
    assert world.condition("SunModel", "maths", "Ready", "other")["reason"] == "NotAllowedByDecoder"
    assert not world.store.one("SharedDecoder", "base")["metadata"].get("finalizers")
    assert world.status("SharedDecoder", "base")["attachedModels"] == 0
    world.store.remove(*PLACE)
    await world.settle()
    assert PLACE not in world.store.objects


async def test_a_task_of_another_namespace_that_may_attach_holds_it(world: World) -> None:
    await _use(world, allowedModels=EVERYONE)
    assert world.status("SharedDecoder", "base")["attachedModels"] == 1
    world.store.remove(*PLACE)
    await world.settle()
    blocked = world.condition("SharedDecoder", "base", "DeletionBlocked")
    assert "other/maths" in blocked["message"]
    world.store.remove("SunModel", "other", "maths")
    await world.settle()
    assert PLACE not in world.store.objects


async def test_a_permission_that_is_withdrawn_lets_go(world: World) -> None:
    await _use(world, allowedModels=EVERYONE)
    world.store.put(decoder())
    await world.settle()
    assert not world.store.one("SharedDecoder", "base")["metadata"].get("finalizers")


async def test_a_spec_that_cannot_be_read_does_not_hold_a_decoder_back(world: World) -> None:
    world.store.put(decoder())
    world.store.put(model())
    await world.settle()
    world.store.put(decoder(engine={"dtype": "int3"}))
    await world.settle()
    accepted = world.condition("SharedDecoder", "base", "Accepted")
    assert accepted["reason"] == "InvalidSpec"
    assert accepted["message"].startswith("spec.engine.dtype: must be ")
    assert "not 'int3'; correct it, or upgrade" in accepted["message"]
    world.store.remove(*PLACE)
    await world.settle()
    assert world.condition("SharedDecoder", "base", "DeletionBlocked")["status"] == "True"
    world.store.remove("SunModel", "team", "maths")
    await world.settle()
    assert PLACE not in world.store.objects


async def test_a_decoder_that_is_used_gets_its_finalizer_though_its_spec_cannot_be_read(world: World) -> None:
    world.store.put(decoder(engine={"dtype": "int3"}))
    world.store.put(model())
    await world.settle()
    assert world.store.one("SharedDecoder", "base")["metadata"]["finalizers"] == [names.FINALIZER]


async def test_a_task_says_that_its_decoder_cannot_be_read_and_keeps_serving(world: World) -> None:
    world.store.put(decoder())
    world.store.put(model())
    await world.settle()
    before = world.status("SunModel", "maths")["traffic"]
    world.store.put(decoder(engine={"dtype": "int3"}))
    await world.settle()
    refs = world.condition("SunModel", "maths", "ResolvedRefs")
    assert (refs["status"], refs["reason"]) == ("False", "InvalidSpec")
    assert "team/base" in refs["message"]
    assert world.status("SunModel", "maths")["traffic"] == before
