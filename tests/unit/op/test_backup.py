"""A backup in an empty cluster: the same weights and the same pods, though a hub has moved on and the operator too."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

from sunfleet_optest.objects import CONFIG, decoder, model, profile, report
from sunfleet_optest.world import DEFAULTS, World

FLOATING = "hf://acme/maths-adapter@main"
SERVER_SET = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "ownerReferences")
Document = dict[str, Any]


def at(commit: str) -> World:
    """A world whose hub has its branches at this commit."""
    world = World()
    world.resolve = lambda uri: report(uri.replace("@main", f"@{commit}"))
    return world


def backup(world: World, kind: str) -> list[Document]:
    """As the documented command makes it."""
    kept = [copy.deepcopy(live) for live in world.store.all(kind)]
    for live in kept:
        live.pop("status", None)
        live["metadata"] = {key: value for key, value in live["metadata"].items() if key not in SERVER_SET}
        live["metadata"].pop("finalizers", None)
    return kept


async def _served() -> World:
    world = at("old")
    world.store.put(decoder())
    world.store.put(model(uri=FLOATING))
    await world.settle()
    return world


def templates(world: World) -> dict[str, Document]:
    return {live["metadata"]["name"]: live["spec"]["template"] for live in world.store.all("Deployment")}


async def test_records_that_were_restored_first_keep_weights_and_pods() -> None:
    before = await _served()
    after = at("new")
    after.defaults = replace(DEFAULTS, engine_image="worker:2")
    for live in backup(before, "ControllerRevision"):
        after.store.put(live)
    for kind in ("SunModel", "SharedDecoder"):
        for live in backup(before, kind):
            after.store.put(live)
    await after.settle()
    assert templates(after) == templates(before)
    assert after.status("SunModel", "maths")["traffic"][0]["revision"] in next(iter(after.deployments("maths")))
    assert after.status("SunModel", "maths")["model"]["resolvedUri"].endswith("@old")
    owners = {live["metadata"]["uid"] for kind in ("SunModel", "SharedDecoder") for live in after.store.all(kind)}
    for live in after.store.all("ControllerRevision"):
        (reference,) = live["metadata"]["ownerReferences"]
        assert reference["uid"] in owners


async def test_no_record_holds_a_null_which_kubectl_refuses() -> None:
    world = at("old")
    scheme = {"kv_cache_quantization": {"type": "float", "actorder": None}}
    world.resolve = lambda uri: (
        report(uri) if "adapter" in uri else report(uri, config={**CONFIG, "rope": {"short": [None]}, **scheme})
    )
    world.store.put(profile(template={"spec": {"nodeSelector": {"gpu": "b200"}}}))
    world.store.put(decoder())
    world.store.put(model(profileRefs=[{"name": "fast"}]))
    await world.settle()
    found = [live["data"] for live in world.store.all("ControllerRevision")]
    assert {data["record"] for data in found} == {"weights", "decoder", "model", "profiles"}
    assert len([data for data in found if data["record"] == "decoder"]) == 1, "a record was read as something else"
    assert "null" not in json.dumps(found).replace('"nulls"', "")


async def test_without_its_records_a_floating_revision_is_resolved_anew_and_says_so() -> None:
    before = await _served()
    after = at("new")
    for kind in ("SunModel", "SharedDecoder"):
        for live in backup(before, kind):
            after.store.put(live)
    await after.settle()
    assert after.status("SunModel", "maths")["model"]["resolvedUri"].endswith("@new")
    assert after.condition("SunModel", "maths", "WeightsReady")["reason"] == "FloatingRevision"


async def test_a_record_that_another_object_controls_is_left_alone() -> None:
    before = await _served()
    after = at("new")
    for live in backup(before, "ControllerRevision"):
        stranger = {"kind": "Other", "name": "x", "uid": "uid-of-nobody", "controller": True}
        live["metadata"]["ownerReferences"] = [stranger]
        after.store.put(live)
    after.store.put(decoder())
    await after.reconcile()
    assert all(
        live["metadata"]["ownerReferences"][0]["uid"] == "uid-of-nobody"
        for live in after.store.all("ControllerRevision")
    )
