"""From live objects and figures to what the policy decides about: one fleet for each decoder. Pure."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from pydantic import ValidationError

from sunfleet_api import names
from sunfleet_api.engine import EngineSpec
from sunfleet_api.prefill_pool import PrefillPool
from sunfleet_api.scaling import Autoscaling
from sunfleet_api.shared_decoder import SharedDecoder
from sunfleet_api.sun_model import SunModel
from sunfleet_operator import counts, resources
from sunfleet_operator.autoscale.fleet import Fixed, Fleet
from sunfleet_operator.autoscale.member import Member
from sunfleet_operator.autoscale.signals import PrefillSignals, Signals, together
from sunfleet_operator.autoscale.state import Pods
from sunfleet_operator.index import scales
from sunfleet_operator.plan.rollout import Limits
from sunfleet_operator.references import canary_of, decoder_of, model_name, pool_of
from sunfleet_operator.types import (
    DECODER,
    MODEL,
    POOL,
    Json,
    Key,
    is_terminating,
    key_of,
    metadata,
    owner_of,
    ready_since,
    revision_of,
    runs_engine,
    status_of,
)

T = TypeVar("T", SharedDecoder, SunModel, PrefillPool)
Scaled = SharedDecoder | SunModel | PrefillPool


@dataclass(frozen=True)
class World:
    """Everything that was listed. ``deployments`` and ``pods`` are ours, by their owners' labels."""

    decoders: Sequence[Json] = ()
    models: Sequence[Json] = ()
    pools: Sequence[Json] = ()
    deployments: Sequence[Json] = ()
    pods: Sequence[Json] = ()
    scalers: Sequence[Json] = ()  # HorizontalPodAutoscalers
    unknown: frozenset[Key] = frozenset()  # objects whose profiles are not known yet: they keep what they have


@dataclass(frozen=True)
class Measured:
    """``prefill`` by model name and ``decode`` by "namespace/name" give signals, or ``None`` where the query failed, as
    ``fault`` says. ``partial``: some load is in no figure."""

    prefill: Callable[[str], Signals | None] = lambda _: None
    decode: Callable[[str], Signals | None] = lambda _: None
    fault: str = ""
    partial: str = ""
    work: Mapping[tuple[str, str], float] = field(default_factory=dict)  # requests by (namespace, pod)
    window: float = 60.0  # seconds that rates are over


@dataclass(frozen=True)
class Group:
    """A decoder, if there is one, the tasks with pods of their own that name it, and the PrefillPools that do."""

    decoder: Json | None
    models: tuple[Json, ...]
    pools: tuple[Json, ...] = ()

    def members(self) -> list[tuple[Key, Json]]:
        """Everything with pods, the decoder first."""
        kinds = ((DECODER, (self.decoder,) if self.decoder else ()), (MODEL, self.models), (POOL, self.pools))
        return [(key_of(kind, live), live) for kind, found in kinds for live in found]


def groups(world: World) -> list[Group]:
    """Those in which anything scales or is bounded."""
    own = _by_decoder(model for model in world.models if pool_of(model) is None)
    pools, decoders = _by_decoder(world.pools), {key_of(DECODER, live): live for live in world.decoders}
    found = [
        Group(decoders.get(key), tuple(own.get(key, ())), tuple(pools.get(key, ())))
        for key in sorted({*own, *pools, *decoders})
    ]
    return [group for group in found if any(scales(live) for _, live in group.members())]


def _by_decoder(found: Iterable[Json]) -> dict[Key, list[Json]]:
    by_decoder: defaultdict[Key, list[Json]] = defaultdict(list)
    for live in found:
        if not is_terminating(live):
            by_decoder[decoder_of(live)].append(live)
    return by_decoder


class Builder:
    """Makes fleets out of one :class:`World`."""

    def __init__(self, world: World, measured: Measured) -> None:
        self._measured, self._unknown = measured, world.unknown
        self._deployments = _by_owner(world.deployments)
        self._pods = _by_owner(pod for pod in world.pods if runs_engine(pod))
        self._sharing: defaultdict[Key, list[Json]] = defaultdict(list)  # tasks by pool
        for model in world.models:
            if (pool := pool_of(model)) is not None and not is_terminating(model):
                self._sharing[pool].append(model)

    def fleet(self, group: Group) -> Fleet:
        """The policy's input. An object whose spec cannot be read keeps what it has."""
        pool = _parsed(SharedDecoder, group.decoder)
        engine = pool.spec.engine if pool else EngineSpec()
        limits = {entry.resource_name: entry.limit for entry in pool.spec.gpu_budget} if pool else {}
        members: dict[str, Member | Fixed] = {}
        weights: dict[str, float] = {}
        for key, live in group.members():
            parsed = pool if key.kind == DECODER else _read(key.kind, live)
            weights[str(key)] = self._weight(key, parsed)
            members[str(key)] = self._member(live, key, parsed, engine, tuple(limits))
        name = str(key_of(DECODER, group.decoder)) if group.decoder else ""
        return Fleet(name, members, limits, weights)

    def loads(self, pool: Key) -> dict[Key, float]:
        """Prompt tokens a second of the tasks of a PrefillPool, where they are measured."""
        found: dict[Key, float] = {}
        for live in self._sharing.get(pool, ()):
            signals = self._measured.prefill(model_name(live))
            if signals is not None and isinstance(signals, PrefillSignals) and signals.token_rate is not None:
                found[key_of(MODEL, live)] = signals.token_rate
        return found

    def _weight(self, key: Key, parsed: Scaled | None) -> float:
        """A pool stands for all its tasks."""
        if key.kind == POOL:
            read = (_parsed(SunModel, live) for live in self._sharing.get(key, ()))
            return float(sum(task.spec.traffic.weight for task in read if task)) or 1.0
        return float(parsed.spec.traffic.weight) if isinstance(parsed, SunModel) else 1.0

    def _member(
        self, live: Json, key: Key, parsed: Scaled | None, engine: EngineSpec, budgeted: Sequence[str]
    ) -> Member | Fixed:
        everything = self._deployments.get(key, [])
        deployments = [one for one in everything if revision_of(one) != canary_of(live)]
        auto = parsed.spec.autoscaling if parsed else None
        standing = counts.standing(live, parsed.spec.replicas if parsed else 0, auto, deployments)
        if parsed is None or key in self._unknown:
            return Fixed(self._observed(key, standing.running or 0), standing.running or 0)
        each = resources.each(engine, parsed.spec.template.spec, deployments, budgeted)
        wanted = standing.present if standing.mode == "BuiltIn" else min(standing.running or 0, standing.asked)
        surge = Limits.of(parsed.spec.rollout, standing.asked).surge if _rolls(live) else 0
        surge += _canary_pods(parsed, live, standing.asked)
        pods = self._observed(key, wanted or 0)
        pods = replace(pods, live=max(pods.live, standing.running or 0), each=each, surge=surge)
        if auto is None or standing.mode != "BuiltIn" or standing.present is None:
            return Fixed(pods, standing.asked)
        held = parsed.spec.paused or _paused(live)
        signals = self._signals(live, key)
        found = self._measured
        return Member(auto, pods, signals, found.fault, found.partial, paused=held, window=found.window)

    def _signals(self, live: Json, key: Key) -> Signals | None:
        if key.kind == MODEL:
            return self._measured.prefill(model_name(live))
        if key.kind == POOL:
            return together(self._measured.prefill(model_name(task)) for task in self._sharing.get(key, ()))
        return self._measured.decode(f"{key.namespace}/{key.name}")

    def _observed(self, key: Key, wanted: int) -> Pods:
        pods = self._pods.get(key, [])
        alive = [pod for pod in pods if not is_terminating(pod)]
        return Pods(
            wanted,
            ready=sum(1 for pod in alive if ready_since(pod) is not None),
            live=len(alive),
            terminating=len(pods) - len(alive),
            startup_seconds=_startup(alive),
        )


def auto_of(live: Json, kind: str) -> Autoscaling | None:
    """``spec.autoscaling``; ``None`` also for a spec that cannot be read."""
    parsed = _read(kind, live)
    return parsed.spec.autoscaling if parsed else None


def _read(kind: str, live: Json) -> Scaled | None:
    if kind == POOL:
        return _parsed(PrefillPool, live)
    return _parsed(SunModel, live) if kind == MODEL else _parsed(SharedDecoder, live)


def _parsed(model: type[T], live: Json | None) -> T | None:
    try:
        return None if live is None else model.parse(live)
    except ValidationError:
        return None


def _paused(live: Json) -> bool:
    return (metadata(live).get("annotations") or {}).get(names.ANNOTATION_SCALING_PAUSED) == "true"


def _rolls(live: Json) -> bool:
    """Whether another revision is wanted than the one that serves."""
    status = status_of(live)
    return bool(status.get("currentRevision")) and status.get("updateRevision") != status.get("currentRevision")


def _canary_pods(parsed: Scaled, live: Json, asked: int) -> int:
    """Pods that a canary's largest step wants beside the others."""
    canary = parsed.spec.canary if isinstance(parsed, SunModel) else None
    if canary is None or not canary_of(live):
        return 0
    share = max((step.weight for step in canary.steps), default=0)
    return min(asked, max(1, math.ceil(asked * share / 100)))


def _by_owner(children: Iterable[Json]) -> dict[Key, list[Json]]:
    found: defaultdict[Key, list[Json]] = defaultdict(list)
    for child in children:
        if (owner := owner_of(child)) is not None:
            found[owner].append(child)
    return found


def _startup(pods: Iterable[Json]) -> float | None:
    """Seconds from creation to Ready. One that was not Ready in between looks slower than it was, so: the median."""
    spans = [_span(str(metadata(pod).get("creationTimestamp") or ""), ready_since(pod) or "") for pod in pods]
    known = [span for span in spans if span is not None and span >= 0]
    return statistics.median(known) if known else None


def _span(begin: str, end: str) -> float | None:
    try:
        return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()
    except ValueError:
        return None
