"""What the router knows of the fleet: frozen objects, replaced as a whole, so that a reader never sees half a change.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from sunfleet_api.wire import ENGINE_MODEL, EngineInfo


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One engine pod that may be given work: ready, not terminating. ``uid`` is the pod's, so a re-created name is
    another.
    """

    uid: str
    name: str
    host: str
    port: int
    role: Literal["prefill", "decode"]
    fingerprint: str  # of its KV: pods with unequal ones are no pair
    info: EngineInfo | None = None  # None until the pod has told; without it it gets nothing
    capacity: int = field(init=False, compare=False)  # KV tokens that fit; 0 while unknown
    accelerators: int = field(init=False, compare=False)  # GPUs; 1 while unknown
    # Prompt and output tokens of one request at most; None while unknown.
    max_model_len: int | None = field(init=False, compare=False)

    def __post_init__(self) -> None:
        info = self.info  # looked at several times in every request
        object.__setattr__(self, "capacity", info.kv_capacity_tokens if info else 0)
        object.__setattr__(self, "accelerators", info.accelerators if info else 1)
        object.__setattr__(self, "max_model_len", info.max_model_len if info else None)

    def told(self, info: EngineInfo) -> Endpoint:
        """The same pod once it has said who it is. What its running engine says of its KV counts beside what its label
        says it should be: an image, a variable or a checkpoint may have made it another one.
        """
        fingerprint = f"{self.fingerprint}/{info.kv_contract}" if info.kv_contract else self.fingerprint
        return replace(self, info=info, fingerprint=fingerprint)

    def room(self, tokens: int) -> int:
        """KV tokens that a request of so many takes here: whole blocks, and never more than the longest request."""
        if self.info is None:
            return tokens
        block, most = self.info.block_size, self.info.max_model_len
        return -(-min(tokens, most) // block) * block


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds per phase, as in ``SunModel.spec.traffic.timeouts``."""

    connect: float = 2.0
    prefill: float = 30.0
    kv_load: float = 30.0
    first_token: float = 60.0
    inter_token: float = 30.0
    request: float = 600.0


@dataclass(frozen=True, slots=True)
class Rate:
    """What may come within a minute; ``None``: any number."""

    requests: int | None = None
    tokens: int | None = None  # prompt and output
    free: bool = field(init=False)  # no limit at all

    def __post_init__(self) -> None:
        object.__setattr__(self, "free", self.requests is None and self.tokens is None)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one task may use, as in ``SunModel.spec.traffic``; seconds, bytes of request bodies. All routers together:
    :class:`sunfleet_router.fleet.replicas.Replicas` says what part of it is this one's.
    """

    weight: int = 1  # its share of a short decode pool, relative to the other tasks
    max_in_flight: int | None = None
    rate: Rate = Rate()
    queue_requests: int = 1000
    queue_tokens: int | None = None
    queue_bytes: int | None = None
    queue_ttl: float = 60.0
    hold: float = 0.0  # without a ready prefill pod
    timeouts: Timeouts = Timeouts()


@dataclass(frozen=True, slots=True)
class Route:
    """One entry of ``status.traffic``: where a share of the task's requests goes. ``prefill`` holds ready pods only."""

    revision: str
    weight: int
    decoder: str  # "namespace/name"
    salt: str
    prefill: tuple[Endpoint, ...] = ()
    module: str = ENGINE_MODEL  # how its prefill pods name it: those of a pool hold many


@dataclass(frozen=True, slots=True)
class Task:
    """One model that clients may ask for. No routes, or routes without pods: known, but nothing serves it now."""

    name: str
    created: int = 0  # Unix seconds
    routes: tuple[Route, ...] = ()
    limits: Limits = Limits()
    defaults: Mapping[str, float | int] = field(default_factory=lambda: MappingProxyType({}))  # of request fields
    sample_per_million: int = 0  # answers to make again and compare

    def prefill_pods(self) -> list[Endpoint]:
        """The ready ones of every revision."""
        return [pod for route in self.routes for pod in route.prefill]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole fleet at one moment. ``pools``: "namespace/name" of a decoder -> its ready decode pods."""

    tasks: Mapping[str, Task] = field(default_factory=lambda: MappingProxyType({}))
    pools: Mapping[str, tuple[Endpoint, ...]] = field(default_factory=lambda: MappingProxyType({}))

    def pool(self, decoder: str) -> tuple[Endpoint, ...]:
        return self.pools.get(decoder, ())

    def decode_pods(self, task: Task) -> list[Endpoint]:
        """The ready ones of every decoder of a task."""
        return [pod for decoder in {route.decoder for route in task.routes} for pod in self.pool(decoder)]

    def unpaired(self, task: Task) -> int:
        """How many of a task's prefill pods make KV that none of its decoders' pods reads, while there are some."""
        pools = [(route.prefill, {pod.fingerprint for pod in self.pool(route.decoder)}) for route in task.routes]
        return sum(pod.fingerprint not in readable for pods, readable in pools if readable for pod in pods)

    def endpoints(self) -> dict[str, Endpoint]:
        """Every endpoint by uid."""
        found = {endpoint.uid: endpoint for pool in self.pools.values() for endpoint in pool}
        for task in self.tasks.values():
            for route in task.routes:
                found.update((endpoint.uid, endpoint) for endpoint in route.prefill)
        return found
