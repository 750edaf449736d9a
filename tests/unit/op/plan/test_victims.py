"""Which pods go first."""

from __future__ import annotations

from typing import Any

from sunfleet_api import names
from sunfleet_operator.autoscale.decision import Decision, Why
from sunfleet_operator.plan import victims
from sunfleet_operator.told import Told
from sunfleet_optest.objects import decoder, model
from sunfleet_optest.world import World


def pod(name: str, *, ready: bool = True, born: str = "2026-01-01T00:00:00Z", cost: str = "") -> dict[str, Any]:
    return {
        "metadata": {
            "name": name, "namespace": "team", "uid": name, "creationTimestamp": born,
            **({"annotations": {victims.ANNOTATION: cost}} if cost else {}),
        },
        "status": {"conditions": [{"type": "Ready", "status": str(ready), "lastTransitionTime": born}]},
    }  # fmt: skip


def costs(pods: list[dict[str, Any]], surplus: int, **work: float) -> dict[str, str]:
    return {
        mark["metadata"]["name"]: mark["metadata"]["annotations"][victims.ANNOTATION]
        for mark in victims.marks(pods, surplus, work)
    }


def test_the_pods_with_the_least_work_go() -> None:
    assert costs([pod("a"), pod("b"), pod("c")], 2, a=9, b=1, c=5) == {"b": "-1", "c": "-1"}


def test_a_pod_that_serves_nobody_yet_goes_before_one_that_idles() -> None:
    assert costs([pod("a"), pod("b", ready=False)], 1, a=0, b=0) == {"b": "-1"}


def test_of_equals_the_youngest_goes() -> None:
    assert costs([pod("a", born="2026-01-01T00:00:00Z"), pod("b", born="2026-01-02T00:00:00Z")], 1) == {"b": "-1"}


def test_a_mark_of_an_earlier_time_is_taken_back() -> None:
    assert costs([pod("a", cost="-1"), pod("b")], 1, a=9, b=1) == {"a": "0", "b": "-1"}
    assert costs([pod("a", cost="-1"), pod("b")], 1, a=1, b=9) == {}
    assert costs([pod("a")], 0) == {}


async def test_marks_are_written_before_the_count() -> None:
    world = World()
    world.store.put(decoder())
    world.store.put(model(replicas=3))
    await world.settle()
    ((revision, _),) = world.deployments("maths").items()
    labels = {names.LABEL_MODEL: "maths", names.LABEL_ROLE: "prefill", names.LABEL_REVISION: revision}
    for name in ("a", "b", "c"):
        live = pod(name)
        live["metadata"]["labels"] = labels
        live["kind"] = "Pod"
        world.store.objects["Pod", "team", name] = live
    world.told = lambda _: Told(Decision(2, Why.STEADY, "", wished=2), work={"a": 5, "b": 1, "c": 7})
    world.store.put(model(replicas=2))
    before = len(world.store.writes)
    await world.reconcile()
    written = [write for write in world.store.writes[before:] if "'Pod'" in write or "Deployment" in write]
    assert len(written) == 2
    assert "'b'" in written[0]
    marked = world.store.one("Pod", "b")["metadata"]["annotations"]
    assert marked == {victims.ANNOTATION: "-1"}
