"""Names of children: two owners of one name, an earlier owner of this name, and strangers that stand in the way."""

from __future__ import annotations

from typing import Any

import pytest

from sunfleet_api import names
from sunfleet_optest.objects import BASE_URI, decoder, model
from sunfleet_optest.world import World


@pytest.fixture
def world() -> World:
    return World()


def _ready(world: World, kind: str, name: str) -> tuple[str, str]:
    found = world.condition(kind, name, "Ready")
    return found["status"], found["reason"]


async def test_a_decoder_and_a_task_may_share_a_name_and_a_checkpoint(world: World) -> None:
    world.store.put(decoder("base"))
    world.store.put(model("base", uri=BASE_URI))
    await world.settle()
    assert _ready(world, "SharedDecoder", "base") == ("True", "Ready")
    assert _ready(world, "SunModel", "base") == ("True", "Ready")


async def test_a_task_that_is_made_again_waits_for_the_children_of_the_first(world: World) -> None:
    world.store.put(decoder())
    world.store.put(model())
    await world.settle()
    del world.store.objects["SunModel", "team", "maths"]  # its children are still there
    world.store.put(model())
    await world.reconcile()
    assert _ready(world, "SunModel", "maths") == ("False", "Pending")
    assert "garbage collector" in world.condition("SunModel", "maths", "Progressing")["message"]
    assert (await world.plan("SunModel", "maths")).requeue_after
    collect_garbage(world)
    await world.settle()
    assert _ready(world, "SunModel", "maths") == ("True", "Ready")
    assert [event["reason"] for event in world.store.all("Event") if event["type"] == "Warning"] == []


def collect_garbage(world: World) -> None:
    uids = {live["metadata"]["uid"] for live in world.store.objects.values()}
    for place, live in list(world.store.objects.items()):
        owners = live["metadata"].get("ownerReferences") or ()
        if owners and not any(owner["uid"] in uids for owner in owners):
            del world.store.objects[place]


@pytest.mark.parametrize("kind", ["Service", "PodDisruptionBudget", "NetworkPolicy"])
async def test_a_strangers_object_is_never_taken_over(world: World, kind: str) -> None:
    theirs = {"kind": kind, "metadata": {"name": "maths-prefill", "namespace": "team"}, "spec": {"theirs": True}}
    world.store.put(theirs)
    world.store.put(decoder())
    world.store.put(model())
    await world.settle()
    live = world.store.one(kind, "maths-prefill")
    assert live["spec"] == theirs["spec"]
    assert "ownerReferences" not in live["metadata"]
    assert _ready(world, "SunModel", "maths") == ("False", "ChildRefused")
    assert f"{kind} team/maths-prefill" in world.condition("SunModel", "maths", "Progressing")["message"]
    assert (await world.plan("SunModel", "maths")).requeue_after
    world.store.remove(kind, "team", "maths-prefill")
    await world.settle()
    assert _ready(world, "SunModel", "maths") == ("True", "Ready")


async def test_children_that_were_orphaned_are_taken_back(world: World) -> None:
    world.store.put(decoder())
    world.store.put(model())
    await world.settle()
    uids = _uids(world)
    del world.store.objects["SunModel", "team", "maths"]
    for live in world.store.objects.values():  # kubectl delete --cascade=orphan
        if live["metadata"].get("labels", {}).get(names.LABEL_MODEL) == "maths":
            live["metadata"]["ownerReferences"] = []
    world.store.put(model())
    await world.settle()
    assert _ready(world, "SunModel", "maths") == ("True", "Ready")
    assert _uids(world) == uids


def _uids(world: World) -> set[Any]:
    return {live["metadata"]["uid"] for live in world.store.all("Deployment")}
