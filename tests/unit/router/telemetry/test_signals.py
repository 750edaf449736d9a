"""What an autoscaler reads of a router: every name is there from the first snapshot on, and the figures are right."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from sunfleet_api import metrics as shared
from sunfleet_router.admission.decode_room import Admission
from sunfleet_router.admission.gate import Visit
from sunfleet_router.admission.load import Load
from sunfleet_router.admission.waiting import Bounds, Waiting
from sunfleet_router.errors import LegFailedError
from sunfleet_router.fleet.current import Fleet
from sunfleet_router.fleet.replicas import Replicas
from sunfleet_router.fleet.snapshot import Endpoint, Route, Snapshot, Task
from sunfleet_router.keys.key import ANYONE
from sunfleet_router.serving.underway import Prefilling
from sunfleet_router.telemetry.metrics import Metrics
from sunfleet_router.transport.connection import ConnectFailedError

POD = Endpoint("uid", "pod", "127.0.0.1", 8000, "prefill", "f")


def value(registry: CollectorRegistry, name: str, labels: Mapping[str, str]) -> float | None:
    return registry.get_sample_value(name, dict(labels))


async def test_every_signal_is_there_as_nought_for_a_task_without_pods() -> None:
    fleet, load = Fleet(), Load(1.0)
    registry = Metrics(fleet, load, Admission(fleet, load, Waiting(Bounds(1, 1, 1), Replicas())), Replicas()).registry
    fleet.replace(Snapshot(tasks={"maths": Task("maths")}, pools={"team/base": ()}))
    for name in shared.OF_ROUTER - {shared.SYNCED} - shared.OF_REVISIONS:
        found = [value(registry, name, {"task": "maths"}), value(registry, name, {"decoder": "team/base"})]
        assert 0.0 in found, name
    assert value(registry, shared.SYNCED, {}) is not None


async def test_every_figure_of_a_revision_is_there_as_nought_once_it_is_routed_and_goes_with_it() -> None:
    fleet, load = Fleet(), Load(1.0)
    made = Metrics(fleet, load, Admission(fleet, load, Waiting(Bounds(1, 1, 1), Replicas())), Replicas())
    routes = tuple(Route(revision, 50, "team/base", "salt") for revision in ("old", "new"))
    fleet.replace(Snapshot(tasks={"maths": Task("maths", routes=routes)}, pools={"team/base": ()}))
    more = {shared.REVISION_REQUESTS: {"outcome": "failed"}}
    labels = {name: {"task": "maths", "revision": "new", **more.get(name, {})} for name in shared.OF_REVISIONS}
    assert [value(made.registry, name, labels[name]) for name in shared.OF_REVISIONS] == [0.0] * 3
    fleet.replace(Snapshot(tasks={"maths": Task("maths", routes=routes[:1])}, pools={"team/base": ()}))
    assert [value(made.registry, name, labels[name]) for name in shared.OF_REVISIONS] == [None] * 3


def leg(load: Load, tokens: int) -> Prefilling:
    """A prefill leg of so many tokens, as a context."""
    fleet = Fleet()
    metrics = Metrics(fleet, load, Admission(fleet, load, Waiting(Bounds(1, 1, 1), Replicas())), Replicas())
    task = Task("maths")
    call: Any = SimpleNamespace(ask=SimpleNamespace(prompt_tokens=tokens), task=task, visit=Visit(task, ANYONE))
    return Prefilling(call, POD, load, metrics)


async def test_prompts_in_their_prefill_leg_are_backlog_and_the_oldest_has_an_age() -> None:
    now = 100.0
    load = Load(1.0, clock=lambda: now)
    with leg(load, 300):
        now += 5
        with leg(load, 40):
            now += 1
            assert (load.prefill_backlog["maths"], load.oldest_prefill("maths")) == (340, 6.0)
        assert load.prefill_backlog["maths"] == 300
    assert (load.prefill_backlog["maths"], load.oldest_prefill("maths")) == (0, 0.0)


async def test_a_leg_that_is_cancelled_leaves_no_backlog() -> None:
    load = Load(1.0)

    async def work() -> None:
        with leg(load, 7):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    assert load.prefill_backlog["maths"] == 7
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not load.prefill_backlog
    assert load.oldest_prefill("maths") == 0.0


async def test_an_exchange_that_breaks_in_a_leg_is_what_the_verdict_makes_of_it_and_the_pods_failure() -> None:
    load = Load(1.0)
    with pytest.raises(LegFailedError) as failed, leg(load, 7):
        raise ConnectFailedError("no connection: refused")
    assert (failed.value.code, failed.value.pod) == ("engine_unreachable", POD.uid)
    assert isinstance(failed.value.__cause__, ConnectFailedError)
    assert not load.prefill_backlog
