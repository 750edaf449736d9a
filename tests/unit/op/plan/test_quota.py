"""Pods that a quota, a LimitRange or a policy refuses: their owner's object says so, in the API server's words."""

from __future__ import annotations

from typing import Any

import pytest

from sunfleet_optest.objects import decoder, model
from sunfleet_optest.world import World

QUOTA = 'pods "base-1" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=1, used: 4, limited: 4'


def refuse_pods(live: dict[str, Any]) -> None:
    """What the Deployment controller makes of a ReplicaSet whose pods are refused."""
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": QUOTA}
    live["status"] = {**(live.get("status") or {}), "conditions": [failure]}


class NoPods(World):
    """Controllers that may make no pod for these Deployments, or for Jobs."""

    def __init__(self, *, jobs: bool = False, owner: str = "") -> None:
        super().__init__()
        self.refuse_jobs, self.owner = jobs, owner

    def controllers(self) -> bool:
        for live in self.store.all("Deployment"):
            if self.owner and live["metadata"]["name"].startswith(self.owner):
                live["status"] = {}
                refuse_pods(live)
        if self.refuse_jobs:
            for job in self.store.all("Job"):
                job["status"] = {"startTime": "2026-01-01T00:00:00Z"}
            return False
        return super().controllers()

    def _run_deployment(self, live: dict[str, Any]) -> bool:
        refused = bool(self.owner) and live["metadata"]["name"].startswith(self.owner)
        return False if refused else super()._run_deployment(live)


@pytest.mark.parametrize(
    ("owner", "kind", "type_"), [("base", "SharedDecoder", "Available"), ("maths", "SunModel", "PrefillReady")]
)
async def test_a_quota_that_leaves_no_room_for_pods_is_told_in_its_own_words(owner: str, kind: str, type_: str) -> None:
    world = NoPods(owner=owner)
    for manifest in (decoder(), model()):
        world.store.put(manifest)
    await world.settle()
    for said in (world.condition(kind, owner, type_), world.condition(kind, owner, "Ready")):
        assert (said["status"], said["reason"]) == ("False", "FailedCreate")
        assert QUOTA in said["message"]
    world.owner = ""
    await world.settle()
    assert world.condition(kind, owner, "Ready")["status"] == "True"


async def test_a_resolver_without_a_pod_tells_what_its_events_say_and_goes_on_once_it_has_one() -> None:
    world = NoPods(jobs=True)
    world.store.put(decoder())
    await world.reconcile()
    world.controllers()
    # Nothing is known yet, and nothing will wake anybody.
    plan = await world.plan("SharedDecoder", "base")
    assert plan.requeue_after is not None
    (job,) = world.store.all("Job")
    for number, message in enumerate(("older", QUOTA)):
        await world.store.create(event(job, message, number))
    await world.reconcile()
    said = world.condition("SharedDecoder", "base", "WeightsReady")
    assert (said["status"], said["reason"]) == ("False", "FailedCreate")
    assert QUOTA in said["message"]
    assert job["metadata"]["name"] in said["message"]
    world.refuse_jobs = False
    await world.settle()
    assert world.condition("SharedDecoder", "base", "Ready")["status"] == "True"


async def test_events_are_asked_for_only_of_a_job_that_should_have_a_pod() -> None:
    world = World()
    asked: list[str] = []
    original = world.store.list

    async def listed(kind: str, *args: Any, **more: Any) -> Any:
        asked.append(kind)
        return await original(kind, *args, **more)

    world.store.list = listed  # type: ignore[method-assign]
    world.store.put(decoder())
    world.store.put(model())
    await world.settle()
    assert "Pod" in asked
    assert "Event" not in asked


def event(job: dict[str, Any], message: str, number: int) -> dict[str, Any]:
    return {
        "kind": "Event",
        "metadata": {"name": f"event-{number}", "namespace": job["metadata"]["namespace"]},
        "involvedObject": {"uid": job["metadata"]["uid"]},
        "reason": "FailedCreate",
        "message": message,
        "lastTimestamp": f"2026-01-01T00:00:0{number}Z",
    }
