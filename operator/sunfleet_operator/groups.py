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
from sunfleet_api.scaling import Autoscaling
from sunfleet_api.shared_decoder import SharedDecoder
from sunfleet_api.sun_model import SunModel
from sunfleet_operator import counts, resources
from sunfleet_operator.autoscale.fleet import Fixed, Fleet
from sunfleet_operator.autoscale.member import Member
from sunfleet_operator.autoscale.signals import Signals
from sunfleet_operator.autoscale.state import Pods
from sunfleet_operator.index import scales
from sunfleet_operator.plan.rollout import Limits
from sunfleet_operator.references import canary_of, decoder_of, model_name
from sunfleet_operator.types import (
    DECODER,
    MODEL,
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

T = TypeVar("T", SharedDecoder, SunModel)


@dataclass(frozen=True)
class World:
    """Everything that was listed. ``deployments`` and ``pods`` are ours, by their owners' labels."""

    decoders: Sequence[Json] = ()
    models: Sequence[Json] = ()
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
    """A decoder, if there is one, and the tasks that name it."""

    decoder: Json | None
    models: tuple[Json, ...]


def groups(world: World) -> list[Group]:
    """Those in which anything scales or is bounded."""
    by_decoder: defaultdict[Key, list[Json]] = defaultdict(list)
    for model in world.models:
        if not is_terminating(model):
            by_decoder[decoder_of(model)].append(model)
    decoders = {key_of(DECODER, live): live for live in world.decoders}
    found = [Group(decoders.get(key), tuple(by_decoder[key])) for key in sorted({*by_decoder, *decoders})]
    return [group for group in found if any(scales(live) for live in (group.decoder, *group.models) if live)]


class Builder:
    """Makes fleets out of one :class:`World`."""

    def __init__(self, world: World, measured: Measured) -> None:
        self._measured, self._unknown = measured, world.unknown
        self._deployments = _by_owner(world.deployments)
        self._pods = _by_owner(pod for pod in world.pods if runs_engine(pod))

    def fleet(self, group: Group) -> Fleet:
        """The policy's input. An object whose spec cannot be read keeps what it has."""
        pool = _parsed(SharedDecoder, group.decoder)
        engine = pool.spec.engine if pool else EngineSpec()
        limits = {entry.resource_name: entry.limit for entry in pool.spec.gpu_budget} if pool else {}
        members: dict[str, Member | Fixed] = {}
        weights: dict[str, float] = {}
        for live, kind, parsed in self._everyone(group, pool):
            key = key_of(kind, live)
            weights[str(key)] = float(parsed.spec.traffic.weight) if isinstance(parsed, SunModel) else 1.0
            members[str(key)] = self._member(live, key, parsed, engine, tuple(limits))
        name = str(key_of(DECODER, group.decoder)) if group.decoder else ""
        return Fleet(name, members, limits, weights)

    @staticmethod
    def _everyone(
        group: Group, pool: SharedDecoder | None
    ) -> Iterable[tuple[Json, str, SharedDecoder | SunModel | None]]:
        if group.decoder is not None:
            yield group.decoder, DECODER, pool
        for live in group.models:
            yield live, MODEL, _parsed(SunModel, live)

    def _member(
        self, live: Json, key: Key, parsed: SharedDecoder | SunModel | None, engine: EngineSpec, budgeted: Sequence[str]
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
    parsed = _parsed(SunModel, live) if kind == MODEL else _parsed(SharedDecoder, live)
    return parsed.spec.autoscaling if parsed else None


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


def _canary_pods(parsed: SharedDecoder | SunModel, live: Json, asked: int) -> int:
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
