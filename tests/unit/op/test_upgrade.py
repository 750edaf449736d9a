"""Objects that an earlier operator left behind, in the hands of this one: nothing rolls, and everything stays Ready.

``upgrades/DATE.json`` is what the operator of that day had made of the three objects in it, at rest. Add one with each
release; never change one.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sunfleet_optest.objects import report
from sunfleet_optest.world import DEFAULTS, World

LEFT = sorted((Path(__file__).parent / "upgrades").glob("*.json"))
OBJECTS = (("SharedDecoder", "base"), ("SunModel", "maths"), ("SunModel", "code"))
Document = dict[str, Any]


@pytest.fixture(params=LEFT, ids=lambda path: path.stem)
def world(request: pytest.FixtureRequest) -> World:
    """The new operator has other default images, and the hub has moved on."""
    made = World(replace(DEFAULTS, engine_image="worker:99", fetcher=replace(DEFAULTS.fetcher, image="weights:99")))
    made.resolve = lambda uri: report(uri, digest="sha256:of-another-commit")
    for live in json.loads(request.param.read_text()):
        meta = live["metadata"]
        made.store.objects[live["kind"], meta["namespace"], meta["name"]] = live
    return made


def templates(world: World) -> dict[str, Document]:
    return {live["metadata"]["name"]: json.loads(json.dumps(live["spec"])) for live in world.store.all("Deployment")}


async def test_no_pod_is_touched_and_every_object_stays_ready(world: World) -> None:
    before, traffic = templates(world), [world.status(*each).get("traffic") for each in OBJECTS]
    seen: list[str] = []
    world.store.before_write = seen.append
    await world.settle()
    assert templates(world) == before
    assert not [write for write in seen if "Deployment" in write or "'Job'" in write or write.startswith("delete")]
    assert [world.status(*each).get("traffic") for each in OBJECTS] == traffic
    for each in OBJECTS:
        assert world.condition(*each, "Ready")["status"] == "True"


async def test_conditions_are_about_the_present_spec_without_a_change_of_it(world: World) -> None:
    await world.settle()
    for each in OBJECTS:
        status = world.status(*each)
        assert status["observedGeneration"] == 1
        assert all(found["observedGeneration"] == 1 for found in status["conditions"])


async def test_what_is_changed_afterwards_is_rolled_out(world: World) -> None:
    await world.settle()
    live = world.store.one("SunModel", "maths")
    old = set(world.deployments("maths"))
    world.store.put({**live, "spec": {**live["spec"], "template": {"metadata": {"annotations": {"a": "b"}}}}})
    await world.settle()
    assert world.condition("SunModel", "maths", "Ready")["status"] == "True"
    assert set(world.deployments("maths")).isdisjoint(old)
