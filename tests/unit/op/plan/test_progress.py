"""How far a download is, in the status: from its log, in steps, and looked at again as long as it lasts."""

from __future__ import annotations

from typing import Any

import pytest

from sunfleet_api.worker import progress_line, progress_of
from sunfleet_optest.objects import decoder
from sunfleet_optest.world import World

POD = "base-pod"
FETCH = "fetch-weights"


async def _downloading(log: str) -> World:
    """A decoder whose one pod loads its weights."""
    world = World()
    world.healthy = lambda _: False
    world.store.put(decoder())
    await world.settle()
    (live,) = world.deployments("base").values()
    running = {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, "name": FETCH, "restartCount": 0}
    pod: dict[str, Any] = {
        "kind": "Pod",
        "metadata": {"name": POD, "namespace": "team", "labels": live["spec"]["template"]["metadata"]["labels"]},
        "spec": {},
        "status": {"phase": "Pending", "initContainerStatuses": [running]},
    }
    for name in [name for kind, _, name in world.store.objects if kind == "Pod"]:
        world.store.remove("Pod", "team", name)
    world.store.objects["Pod", "team", POD] = world.store._new(pod)
    world.store.logs[POD] = log
    return world


def _log(*percents: int) -> str:
    lines = [f"{progress_line('fetched', share * 10**8, 10**10)}, 240 MB/s, 62 s left" for share in percents]
    return "\n".join(["resolved to abc", *lines])


async def test_the_status_tells_the_percentage_and_looks_again() -> None:
    world = await _downloading(_log(3, 47))
    await world.reconcile()
    said = world.condition("SharedDecoder", "base", "Available")
    assert said["reason"] == "Downloading"
    assert "fetched 40 % of 10.0 GB" in said["message"]
    assert (await world.plan("SharedDecoder", "base")).requeue_after == 15


async def test_it_is_written_in_steps_and_not_with_every_look() -> None:
    world = await _downloading(_log(41))
    await world.reconcile()
    writes = len(world.store.writes)
    for share in (43, 46, 49):
        world.store.logs[POD] = _log(share)
        await world.reconcile()
    assert len(world.store.writes) == writes
    world.store.logs[POD] = _log(50)
    await world.reconcile()
    assert len(world.store.writes) == writes + 1


@pytest.mark.parametrize("log", ["", "a line that says nothing\n"])
async def test_without_a_readable_log_it_is_a_download_all_the_same(log: str) -> None:
    world = await _downloading(log)
    await world.reconcile()
    said = world.condition("SharedDecoder", "base", "Available")
    assert said["reason"] == "Downloading"
    assert "%" not in said["message"]


async def test_a_fleet_at_rest_is_not_looked_at_again_and_no_log_is_read() -> None:
    world = World()
    world.store.put(decoder())
    await world.settle()
    assert (await world.plan("SharedDecoder", "base")).requeue_after is None


def test_the_last_line_of_progress_counts() -> None:
    assert progress_of(_log(3, 47) + "\nsomething else") == "fetched 40 % of 10.0 GB"
    assert progress_of("a 1.0 of 2.0 GB (50 %)") == "a 50 % of 2.0 GB"
    assert progress_of("no 1.0 of 2.0 GB (x %)") == ""
