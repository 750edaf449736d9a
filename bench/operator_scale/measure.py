"""One size, from an empty cluster to the last figure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from operator_scale import fleet
from operator_scale.spent import spent
from operator_scale.world import World, world
from processes import cpu_seconds, rss_megabytes

_READY_SECONDS = 900
_IDLE_SECONDS = 30.0
# The garbage collector looks for new kinds so often. Before it knows ours it asks the API server for the owner of every
# child, which no cluster does whose CRDs have been there for longer.
_COLLECTOR_SECONDS = 35.0
_SETTLE_SECONDS = 5.0  # the last status writes after Ready
_NEVER = 3600.0  # no resync within the bench
_RESYNC_SECONDS = 20.0
_PATCHES = 100
Told = Callable[[str], None]


@dataclass(frozen=True)
class Figures:
    """Of one size. Times in seconds, memory in MB; ``*_writes`` without the Lease's renewals."""

    models: int
    ready_after_last_accepted: float
    ready_after_first_sent: float
    operator_cpu: float  # until all were Ready, as what follows
    server_cpu: float  # of the API server
    all_cpu: float  # with etcd and the controllers
    requests_per_model: float  # until all were Ready
    patch_p50: float
    patch_p99: float
    idle_requests: int
    idle_writes: int
    idle_cpu_percent: float
    resync_reconciles: int
    resync_requests_per_reconcile: float
    resync_writes: int
    rss: float  # after all of it but the resync, which is another process
    requests_by_kind: dict[str, int]  # until all were Ready, by verb and resource
    server_requests: dict[str, float]  # of all clients, likewise
    server_seconds: dict[str, float]  # that these took, by the API server's clock

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


async def measure(folder: Path, count: int, tell: Told) -> Figures:
    """``count`` SunModels on five decoders."""
    async with world(folder, _NEVER) as here:
        tell("waiting for the decoders")
        await fleet.create(here.api, fleet.decoders())
        await asyncio.sleep(_COLLECTOR_SECONDS)
        here.audit.since_last()
        before = await spent(here)
        sent, accepted, ready = await _bring_up(here, count, tell)
        cost = (await spent(here)).since(before)
        await asyncio.sleep(_SETTLE_SECONDS)
        to_ready = here.audit.since_last()
        tell("patches")
        latencies = await fleet.patch_latencies(here.api, count, _PATCHES)
        await asyncio.sleep(_SETTLE_SECONDS)
        tell(f"idle for {_IDLE_SECONDS:.0f} s")
        here.audit.since_last()
        cpu = cpu_seconds(here.pid)
        await asyncio.sleep(_IDLE_SECONDS)
        idle, idle_cpu = here.audit.since_last(), cpu_seconds(here.pid) - cpu
        rss = rss_megabytes(here.pid)
        tell("another operator takes over, and resyncs")
        await here.start_operator(_RESYNC_SECONDS)
        reconciles = await _resynced(here, 2 * (count + fleet.DECODERS))
        await asyncio.sleep(_SETTLE_SECONDS)
        resync = here.audit.since_last()
    return Figures(
        models=count,
        ready_after_last_accepted=ready - accepted,
        ready_after_first_sent=ready - sent,
        operator_cpu=cost.cpu["operator"],
        server_cpu=cost.cpu["kube-apiserver"],
        all_cpu=sum(cost.cpu.values()),
        requests_per_model=to_ready.total / count,
        patch_p50=latencies[len(latencies) // 2],
        patch_p99=latencies[int(len(latencies) * 0.99)],
        idle_requests=idle.total,
        idle_writes=idle.mutating.total(),
        idle_cpu_percent=100 * idle_cpu / _IDLE_SECONDS,
        resync_reconciles=reconciles,
        resync_requests_per_reconcile=resync.total / reconciles,
        resync_writes=resync.mutating.total(),
        rss=rss,
        requests_by_kind={f"{verb} {resource}": n for (verb, resource), n in to_ready.by_kind.most_common()},
        server_requests=cost.requests,
        server_seconds={name: round(value, 3) for name, value in cost.seconds.items()},
    )


async def _bring_up(here: World, count: int, tell: Told) -> tuple[float, float, float]:
    """Monotonic times: first object sent, last one accepted, all Ready."""
    waiting = asyncio.create_task(fleet.all_ready(here.api, count, lambda ready: tell(f"{ready} of {count} Ready")))
    sent = time.monotonic()
    await fleet.create(here.api, fleet.models(0, count))
    accepted = time.monotonic()
    return sent, accepted, await asyncio.wait_for(waiting, _READY_SECONDS)


async def _resynced(here: World, reconciles: int) -> int:
    """Wait for so many reconciles: each object once when the process starts, and once more by its timer."""
    while (done := await asyncio.to_thread(here.reconciles)) < reconciles:  # noqa: ASYNC110 - of another process
        await asyncio.sleep(0.5)
    return int(done)
