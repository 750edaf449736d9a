"""A scaler in a world: what a Prometheus says, round by round, and the pods that come of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sunfleet_api import names
from sunfleet_operator.heard import Lookup
from sunfleet_operator.index import Index
from sunfleet_operator.prometheus import MetricsError
from sunfleet_operator.promql import Sample, queries
from sunfleet_operator.scaler import Scaler
from sunfleet_operator.types import DECODER, MODEL, POOL, Key
from sunfleet_optest.objects import decoder
from sunfleet_optest.scaling import AT_ONCE
from sunfleet_optest.world import World

QUERIES = queries(60, {})
ACTS = {"maxReplicas": 8, "behavior": AT_ONCE}
ROUTERS = Lookup("system", {"app": "router"})


class Answers:
    """A Prometheus that says what a test wants, task by task and pool by pool."""

    def __init__(self) -> None:
        self.tasks: dict[str, dict[str, float]] = {}
        self.pools: dict[str, dict[str, float]] = {}
        self.silent = 0
        self.routers = 0  # that have series
        self.work: dict[tuple[str, str], float] = {}
        self.fault: MetricsError | None = None
        self.asked = 0

    def task(self, name: str, **figures: float) -> None:
        self.tasks[name] = {**dict.fromkeys(QUERIES.prefill, 0.0), **figures}

    def pool(self, name: str, **figures: float) -> None:
        quiet = {"age": 0.0, "reserved": 0.0, "queued": 0.0, "capacity": 1000.0, "endpoints": 1.0}
        self.pools[name] = {**quiet, **figures}

    async def ask(self, texts: Mapping[str, str]) -> dict[str, Sequence[Sample]]:
        self.asked += 1
        if self.fault is not None:
            raise self.fault
        found: dict[str, Sequence[Sample]] = {}
        for name in texts:
            part, pool = name.removeprefix("decode "), name.startswith("decode ")
            label, said = ("decoder", self.pools) if pool else ("task", self.tasks)
            found[name] = [Sample({label: who}, figures[part]) for who, figures in said.items() if part in figures]
        found["silent"] = [Sample({}, self.silent)] if self.silent else []
        found["told"] = [Sample({}, self.routers)] if self.routers else []
        found["work"] = [Sample({"namespace": space, "pod": pod}, value) for (space, pod), value in self.work.items()]
        return found


class Rounds:
    """A world whose scaler has a clock of its own."""

    def __init__(self, world: World, source: Answers | None) -> None:
        self.world, self.source, self.now, self.changed = world, source, 0.0, list[Key]()
        self.index = Index()
        self.scaler = Scaler(
            world.store, source, QUERIES, self.index, self.changed.append, routers=ROUTERS, clock=lambda: self.now
        )  # fmt: skip
        world.told, world.noted = self.scaler.told, self.scaler.note

    async def round(self, seconds: float = 15) -> None:
        """One round, and everything that follows from it."""
        self.now += seconds
        self.index.rebuild(*(self.world.store.all(kind) for kind in (MODEL, DECODER, POOL)))
        await self.scaler.round()
        await self.world.settle()
        self.pods()

    def pods(self) -> None:
        """One Ready pod for each that a Deployment wants."""
        store = self.world.store
        for place in [place for place in store.objects if place[0] == "Pod" and "-engine-" in place[2]]:
            del store.objects[place]
        for live in list(store.all("Deployment")):
            labels = {**live["spec"]["template"]["metadata"]["labels"], names.LABEL_MANAGED_BY: names.MANAGED_BY}
            for number in range(live["spec"]["replicas"] if self.world.healthy(live) else 0):
                name = f"{live['metadata']['name']}-engine-{number}"
                stamps = {"creationTimestamp": "2026-01-01T00:00:00Z", "uid": name, "labels": labels}
                ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:01:30Z"}
                pod = {"kind": "Pod", "metadata": {"name": name, "namespace": "team", **stamps},
                       "status": {"phase": "Running", "conditions": [ready]}}  # fmt: skip
                store.objects["Pod", "team", name] = pod

    def replicas(self, owner: str) -> int:
        return sum(int(live["spec"]["replicas"]) for live in self.world.deployments(owner).values())

    def reason(self, kind: str, name: str) -> str:
        return str(self.world.condition(kind, name, "ScalingReady").get("reason"))


async def rounds(*tasks: dict[str, Any], pool: dict[str, Any] | None = None, source: Answers | None = None) -> Rounds:
    """A settled world with a decoder, ``pool`` or one that scales, and these objects."""
    world = World()
    made = Rounds(world, source)
    world.store.put(pool or decoder(autoscaling=ACTS))
    for task in tasks:
        world.store.put(task)
    await world.settle()
    made.pods()
    return made
