"""A namespace that is being deleted takes our pods along at once, and no other namespace does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import kopf
import pytest

from sunfleet_api import names
from sunfleet_operator import main
from sunfleet_operator.cluster import Cluster, ClusterError
from sunfleet_operator.health import Health
from sunfleet_operator.observed import ObservedNamespace
from sunfleet_operator.plan.actions import Delete, Plan
from sunfleet_operator.plan.namespace import GRACE_SECONDS, plan
from sunfleet_operator.process import Operator
from sunfleet_operator.settings import Settings
from sunfleet_operator.types import NAMESPACE, Json, Key, Ref
from sunfleet_operator.workqueue import WorkQueue
from sunfleet_optest.objects import decoder, model
from sunfleet_optest.world import World

WHEN = "2026-01-01T00:00:00Z"
LIVE: Json = {"kind": NAMESPACE, "metadata": {"name": "team"}}
GOING: Json = {"kind": NAMESPACE, "metadata": {"name": "team", "deletionTimestamp": WHEN}}


def _pod(name: str, namespace: str = "team", *, ours: bool = True, **metadata: Any) -> dict[str, Any]:
    labels = {names.LABEL_MANAGED_BY: names.MANAGED_BY} if ours else {}
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": labels, **metadata}
    return {"kind": "Pod", "metadata": meta}


def _deleted_with(seconds: int) -> dict[str, Any]:
    return {"deletionTimestamp": WHEN, "deletionGracePeriodSeconds": seconds}


def test_pods_of_a_namespace_that_goes_are_deleted_with_the_least_grace() -> None:
    found = plan(ObservedNamespace(GOING, (_pod("a"), _pod("b"))))
    assert found.before == tuple(Delete(Ref("Pod", "team", name, f"uid-{name}"), 1) for name in "ab")
    assert found.requeue_after is not None


def test_pods_of_a_namespace_that_stays_are_left_alone() -> None:
    assert plan(ObservedNamespace(LIVE, (_pod("a"), _pod("b", **_deleted_with(335))))) == Plan()


@pytest.mark.parametrize(
    ("seconds", "again"), [(335, True), (GRACE_SECONDS + 1, True), (GRACE_SECONDS, False), (0, False)]
)
def test_a_pod_that_drains_already_is_hurried_and_one_that_ends_is_not(seconds: int, again: bool) -> None:
    found = plan(ObservedNamespace(GOING, (_pod("a", **_deleted_with(seconds)),)))
    assert (bool(found.before), found.requeue_after is not None) == (again, again)


def test_a_namespace_without_pods_of_ours_is_not_looked_at_again() -> None:
    assert plan(ObservedNamespace(GOING)) == Plan()


@pytest.fixture
def world() -> World:
    made = World()
    for pod in (_pod("mine"), _pod("theirs", ours=False), _pod("elsewhere", "other")):
        meta = pod["metadata"]
        made.store.objects["Pod", meta["namespace"], meta["name"]] = pod
    return made


async def test_only_our_pods_of_this_very_namespace_are_deleted_and_only_once(world: World) -> None:
    world.store.terminating.add("team")
    reconcile, key = world.reconciler(), Key(NAMESPACE, "", "team")
    assert await reconcile(key) is not None
    assert world.store.writes == ["delete Pod mine in 1 s"]
    assert await reconcile(key) is None
    assert len(world.store.writes) == 1


async def test_nothing_is_deleted_while_the_namespace_stays(world: World) -> None:
    assert await world.reconciler()(Key(NAMESPACE, "", "team")) is None
    assert world.store.writes == []


async def test_a_fleet_that_is_removed_otherwise_keeps_the_drain_of_its_pods(world: World) -> None:
    world.store.put(decoder())
    world.store.put(model())
    await world.settle()
    world.store.remove("SunModel", "team", "maths")
    world.store.remove("SharedDecoder", "team", "base")
    await world.settle()
    assert not [write for write in world.store.writes if write.startswith("delete Pod")]


@pytest.fixture
def queue() -> WorkQueue[Key]:
    return WorkQueue(first_delay=0.01, max_delay=0.05, expected=ClusterError)


def _operator(queue: WorkQueue[Key], **settings: Any) -> Operator:
    given = Settings(**settings)
    nobody = cast("Any", None)  # is asked for nothing
    cluster = Cluster(nobody, timeout_seconds=1, namespaces=given.namespaces)
    return Operator(given, cluster, queue, Health(lambda: 0.0, 1.0))


@pytest.mark.parametrize(("live", "gone", "queued"), [(GOING, False, 1), (LIVE, False, 0), (GOING, True, 0)])
async def test_a_namespace_is_worked_on_from_its_deletion_until_it_is_gone(
    queue: WorkQueue[Key], live: Json, gone: bool, queued: int
) -> None:
    operator = _operator(queue)
    for _ in range(3):
        operator.seen(NAMESPACE, live, "DELETED" if gone else "MODIFIED")
    assert len(queue) == queued


@pytest.mark.parametrize(("served", "queued"), [((), 2), (("team",), 1)])
def test_what_an_object_refers_to_is_looked_at_only_where_this_operator_may(
    queue: WorkQueue[Key], served: tuple[str, ...], queued: int
) -> None:
    operator = _operator(queue, namespaces=served)
    manifest = model(decoderRef={"name": "base", "namespace": "elsewhere"})
    meta = {**manifest["metadata"], "uid": "1", "resourceVersion": "1"}
    operator.seen("SunModel", {**manifest, "metadata": meta}, "ADDED")
    assert len(queue) == queued


@pytest.fixture
def registry() -> Iterator[kopf.OperatorRegistry]:
    """Handlers that are registered in a test are gone after it."""
    before, made = kopf.get_default_registry(), kopf.OperatorRegistry()
    kopf.set_default_registry(made)
    yield made
    kopf.set_default_registry(before)


@pytest.mark.parametrize(("served", "watched"), [((), {"namespaces"}), (("team",), set())])
async def test_an_operator_that_serves_some_namespaces_watches_none(
    queue: WorkQueue[Key], registry: kopf.OperatorRegistry, monkeypatch: pytest.MonkeyPatch, served: Any, watched: Any
) -> None:
    async def ends_at_once(**_: Any) -> None:
        return

    monkeypatch.setattr(kopf, "operator", ends_at_once)
    operator = _operator(queue, namespaces=served)
    await main._work(operator, asyncio.Event().wait())
    assert {str(selector.any_name) for selector in registry._watching.get_all_selectors()} == watched


def test_a_key_of_a_namespace_reads_as_one() -> None:
    assert [str(Key(NAMESPACE, "", "team")), str(Key("SunModel", "team", "maths"))] == [
        "Namespace team",
        "SunModel team/maths",
    ]
