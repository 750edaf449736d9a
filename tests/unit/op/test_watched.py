"""What watches tell is known without asking; what they may not have told is asked for."""

from __future__ import annotations

import copy
import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from sunfleet_api import names
from sunfleet_operator.cluster import UnavailableError
from sunfleet_operator.memory import WATCHED
from sunfleet_operator.recall import Recalling
from sunfleet_operator.types import Json, Listed
from sunfleet_optest.objects import decoder, model
from sunfleet_optest.store import Store
from sunfleet_optest.world import World

Document = dict[str, Any]
MINE = {names.LABEL_MODEL: "maths"}


def _live(kind: str, name: str = "maths-1", version: int = 5, **more: Any) -> Document:
    labels = {**MINE, "batch.kubernetes.io/job-name": "maths-1"}
    meta = {"name": name, "namespace": "team", "uid": name, "resourceVersion": str(version), "labels": labels}
    return {"kind": kind, "metadata": meta, **more}


class Asked(Store):
    """Answers with what a test puts there; ``meanwhile`` happens while an answer is on its way."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.version = ""  # of lists
        self.meanwhile: Callable[[], object] = lambda: None

    def hold(self, *found: Document) -> None:
        self.objects = {(live["kind"], "team", live["metadata"]["name"]): live for live in found}

    async def get(self, kind: str, namespace: str, name: str) -> Json | None:
        self.reads += 1
        found = await super().get(kind, namespace, name)
        self.meanwhile()
        return found

    async def apply(self, manifest: Document, manager: str, *, subresource: str = "") -> Json:
        return copy.deepcopy(await super().apply(manifest, manager, subresource=subresource))

    async def list(self, kind: str, *args: Any, **more: Any) -> Any:
        self.reads += 1
        found = await super().list(kind, *args, **more)
        self.meanwhile()
        return Listed(found, self.version)


@pytest.fixture
def store() -> Asked:
    return Asked()


@pytest.fixture
def recalling(store: Asked) -> Recalling:
    return Recalling(store, 60.0, clock=lambda: 0.0)


async def _versions(recalling: Recalling, kind: str) -> dict[str, str]:
    found = await recalling.list(kind, "team", labels=MINE)
    return {live["metadata"]["name"]: live["metadata"]["resourceVersion"] for live in found}


async def test_an_event_corrects_what_is_known_and_nobody_asks_again(store: Asked, recalling: Recalling) -> None:
    store.hold(_live("Deployment"))
    await _versions(recalling, "Deployment")
    recalling.told("Deployment", _live("Deployment", version=10), gone=False)
    assert await _versions(recalling, "Deployment") == {"maths-1": "10"}
    recalling.told("Deployment", _live("Deployment", version=11), gone=True)
    assert await _versions(recalling, "Deployment") == {}
    assert store.reads == 1


@pytest.mark.parametrize("gone", [True, False])
async def test_an_event_that_is_older_than_what_is_known_changes_nothing(
    store: Asked, recalling: Recalling, gone: bool
) -> None:
    """Also one that tells of the end of an earlier object of the same name."""
    store.hold(_live("Deployment", version=10), _live("SunModel", "maths", 10))
    await _versions(recalling, "Deployment")
    await recalling.get("SunModel", "team", "maths")
    recalling.told("Deployment", _live("Deployment", version=9), gone=gone)
    assert not recalling.told("SunModel", _live("SunModel", "maths", 9), gone=gone)
    assert await _versions(recalling, "Deployment") == {"maths-1": "10"}
    found = await recalling.get("SunModel", "team", "maths")
    assert found is not None
    assert found["metadata"]["resourceVersion"] == "10"
    assert store.reads == 2


async def test_an_object_is_known_from_its_event_until_it_is_gone(store: Asked, recalling: Recalling) -> None:
    assert recalling.told("SunModel", _live("SunModel", "maths"), gone=False)
    assert await recalling.get("SunModel", "team", "maths") is not None
    assert store.reads == 0
    assert recalling.told("SunModel", _live("SunModel", "maths", 6), gone=True)
    assert await recalling.get("SunModel", "team", "maths") is None
    assert store.reads == 1


async def test_a_policy_that_somebody_deletes_is_missing_at_once(store: Asked, recalling: Recalling) -> None:
    manifest = {**_live("NetworkPolicy"), "apiVersion": "networking.k8s.io/v1", "spec": {}}
    manifest["metadata"].pop("uid")
    live = await recalling.apply(manifest, "m")
    assert not recalling.told("NetworkPolicy", live, gone=False)  # what we wrote is no news
    assert await recalling.get("NetworkPolicy", "team", "maths-1") is not None
    store.hold()
    assert recalling.told("NetworkPolicy", _live("NetworkPolicy", version=99), gone=True)
    assert await recalling.get("NetworkPolicy", "team", "maths-1") is None


@pytest.mark.parametrize(("version", "known"), [(9, {"maths-1": "9"}), (5, {})])
async def test_something_new_joins_its_list_unless_it_was_gone_when_that_was_read(
    store: Asked, recalling: Recalling, version: int, known: dict[str, str]
) -> None:
    store.version = "7"
    assert await _versions(recalling, "Pod") == {}
    recalling.told("Pod", _live("Pod", version=version), gone=False)
    assert await _versions(recalling, "Pod") == known
    assert store.reads == 1


async def test_something_new_has_a_list_of_unknown_age_read_anew(store: Asked, recalling: Recalling) -> None:
    """The event may be older than the list, and the object be gone again."""
    assert await _versions(recalling, "Pod") == {}
    recalling.told("Pod", _live("Pod"), gone=False)
    assert await _versions(recalling, "Pod") == {}
    assert store.reads == 2


@pytest.mark.parametrize("kind", ["Pod", "SunModel"])
async def test_an_answer_that_was_overtaken_by_an_event_is_not_remembered(
    store: Asked, recalling: Recalling, kind: str
) -> None:
    name = "maths"
    store.hold(_live(kind, name))
    store.meanwhile = lambda: recalling.told(kind, _live(kind, name, 9), gone=True)
    await recalling.list(kind, "team", labels=MINE) if kind == "Pod" else await recalling.get(kind, "team", name)
    store.hold()
    store.meanwhile = lambda: None
    if kind == "Pod":
        assert await _versions(recalling, kind) == {}
    else:
        assert await recalling.get(kind, "team", name) is None


ENDED = {"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
BEGUN = {"startTime": "2026-01-01T00:00:00Z"}
FAILED = {**ENDED, "succeeded": 1, "failed": 1}


@pytest.mark.parametrize(
    ("job", "phases", "reads"),
    [
        (ENDED, ["Running"], 2), (ENDED, ["Succeeded"], 1), (ENDED, [], 2),
        (FAILED, ["Failed"], 2), (FAILED, ["Failed", "Succeeded"], 1),
        (BEGUN, [], 2), ({**BEGUN, "active": 1}, [], 1), (BEGUN, ["Pending"], 1), ({}, [], 1),
    ],
    ids=[
        "ended, and its pod not", "ended with its pod", "ended without a pod",
        "ended, and the pod that succeeded is not there yet", "ended with both",
        "begun, and no pod", "begun, and its pod is on the way", "begun, with its pod", "not begun",
    ],
)  # fmt: skip
async def test_pods_are_never_older_than_the_job_that_they_explain(
    store: Asked, recalling: Recalling, job: Document, phases: list[str], reads: int
) -> None:
    store.hold(*(_live("Pod", f"pod-{number}", status={"phase": phase}) for number, phase in enumerate(phases)))
    await _versions(recalling, "Pod")
    recalling.told("Job", _live("Job", version=9, status=job), gone=False)
    await _versions(recalling, "Pod")
    assert store.reads == reads


async def test_a_watch_that_begins_anew_has_all_of_its_kind_read_again(store: Asked, recalling: Recalling) -> None:
    """What was deleted in the gap is never told, and where nothing is left nothing is told at all."""
    store.hold(_live("Pod"), _live("Deployment"))
    await _versions(recalling, "Pod")
    await _versions(recalling, "Deployment")
    store.hold()
    recalling.relisted("Pod", "")
    assert await _versions(recalling, "Pod") == {}
    assert list(await _versions(recalling, "Deployment")) == ["maths-1"]


async def test_an_answer_from_before_a_watch_began_anew_is_not_remembered(store: Asked, recalling: Recalling) -> None:
    store.hold(_live("Deployment"))
    store.meanwhile = lambda: recalling.relisted("Deployment", "")
    await _versions(recalling, "Deployment")
    store.hold()
    assert await _versions(recalling, "Deployment") == {}


async def test_where_namespaces_are_watched_apart_a_listing_of_one_leaves_the_others(
    store: Asked, recalling: Recalling
) -> None:
    await _versions(recalling, "Deployment")
    await recalling.get("SunModel", "team", "maths")
    reads = store.reads
    recalling.relisted("Deployment", "elsewhere")
    await _versions(recalling, "Deployment")
    assert store.reads == reads
    recalling.relisted("Deployment", "team")
    await _versions(recalling, "Deployment")
    assert store.reads == reads + 1


async def test_when_requests_get_no_answer_nothing_is_relied_on(store: Asked, recalling: Recalling) -> None:
    await _versions(recalling, "Pod")

    def fail() -> None:
        raise UnavailableError("GET", 0, "no answer")

    store.meanwhile = fail
    with pytest.raises(UnavailableError):
        await recalling.get("SunModel", "team", "maths")
    assert recalling.remembered == 0


class Watched(World):
    """A world whose reconciles know what watches tell them."""

    def __init__(self) -> None:
        super().__init__(with_pods=True)
        self.asked = self.store = Asked()
        self.recalling = Recalling(self.store, 1e9, clock=lambda: 0.0)
        self._told: dict[Any, Document] = {}

    def controllers(self) -> bool:
        moved = super().controllers()
        self.tell()
        return moved

    def tell(self) -> None:
        """Whatever happened since, as events."""
        assert self.recalling is not None
        for place, live in list(self.store.objects.items()):
            if place[0] in WATCHED and self._told.get(place) != live:
                self._told[place] = copy.deepcopy(live)
                self.recalling.told(place[0], self._event(live), gone=False)
        for place in self._told.keys() - self.store.objects.keys():
            self.recalling.told(place[0], self._event(self._told.pop(place)), gone=True)

    def _event(self, live: Document) -> Document:
        version = str(next(self.store._numbers))
        return copy.deepcopy({**live, "metadata": {**live["metadata"], "resourceVersion": version}})


async def _live_through(world: World) -> tuple[Any, ...]:
    """A fleet that is made, gets other weights, loses a Deployment and a policy, and is scaled."""
    world.store.put(decoder())
    world.store.put(model())
    await world.settle()
    world.store.put(model(uri="pvc://models/adapters/other"))
    await world.settle()
    for live in [*world.store.all("Deployment"), *world.store.all("NetworkPolicy")]:
        world.store.remove(live["kind"], "team", live["metadata"]["name"])
    await world.settle()
    world.store.put(model(uri="pvc://models/adapters/other", replicas=3))
    await world.settle()
    replicas = {name: live["spec"]["replicas"] for name, live in world.deployments("maths").items()}
    traffic = [(entry["revision"], entry["weight"]) for entry in world.status("SunModel", "maths")["traffic"]]
    kinds = sorted((kind, name) for kind, _, name in world.store.objects if kind != "Event")
    return kinds, replicas, traffic, world.condition("SunModel", "maths", "Ready")["status"]


async def test_a_fleet_comes_to_the_same_end_whether_it_is_read_or_told() -> None:
    read, told = World(with_pods=True), Watched()
    asked = Asked()
    read.store = asked
    assert await _live_through(told) == await _live_through(read)
    assert told.asked.reads < asked.reads / 4


async def test_before_anything_is_taken_away_it_is_read_again() -> None:
    """The memory believes that new pods serve; they have just died, and no event has told it yet."""
    world = Watched()
    world.store.put(decoder())
    world.store.put(model())
    await world.settle()
    (old,) = world.deployments("maths")
    world.healthy = lambda live: (
        live["metadata"]["labels"].get(names.LABEL_REVISION) == old or "base" in str(live["metadata"]["name"])
    )
    world.store.put(model(uri="pvc://models/adapters/other"))
    await world.settle()
    (new,) = world.deployments("maths").keys() - {old}
    believed = copy.deepcopy(world.deployments("maths")[new])
    believed["status"] |= {"readyReplicas": 1, "availableReplicas": 1}
    believed["metadata"]["resourceVersion"] = "999999"
    assert world.recalling is not None
    world.recalling.told("Deployment", believed, gone=False)
    await world.reconcile()
    await world.reconcile()
    assert world.deployments("maths")[old]["spec"]["replicas"] == 1


async def test_what_is_remembered_takes_little_more_room_than_its_text(store: Asked, recalling: Recalling) -> None:
    """Ten objects for each of hundreds of models, as dictionaries, took more than all the rest of the operator."""
    fields: Document = {f"f:field-{number}": {f"k:{number}": {".": {}, "f:name": {}}} for number in range(200)}
    text = len(json.dumps(fields, separators=(",", ":")))
    tracemalloc.start()
    try:
        for number in range(50):
            recalling.told(
                "SunModel", json.loads(json.dumps(_live("SunModel", f"m-{number}", spec=fields))), gone=False
            )
        each = tracemalloc.get_traced_memory()[0] / 50
    finally:
        tracemalloc.stop()
    assert recalling.remembered == 50
    assert each < 1.5 * text
