"""The scaler's rounds: list, measure, decide, tell. Only the leading process has any: one decision maker."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from sunfleet_operator import metrics, promql
from sunfleet_operator.autoscale import member
from sunfleet_operator.autoscale.fleet import Fleet, Outcome, decide
from sunfleet_operator.autoscale.state import State
from sunfleet_operator.build import labels
from sunfleet_operator.cluster import ClusterError, NotFoundError
from sunfleet_operator.counts import told_before
from sunfleet_operator.groups import Builder, Group, Measured, World, groups
from sunfleet_operator.heard import Lookup
from sunfleet_operator.index import Index
from sunfleet_operator.observe import Reader
from sunfleet_operator.prometheus import MetricsError
from sunfleet_operator.promql import Queries, Sample
from sunfleet_operator.rivals import rivals
from sunfleet_operator.told import Told
from sunfleet_operator.types import (
    DECODER,
    MODEL,
    POOL,
    Json,
    Key,
    is_terminating,
    key_of,
    metadata,
    ready_since,
    spec_of,
)

logger = logging.getLogger(__name__)
NO_URL = "no Prometheus is configured (SUNFLEET_OPERATOR_PROMETHEUS__URL)"


class Source(Protocol):
    """The reading half of :class:`~sunfleet_operator.prometheus.Prometheus`."""

    async def ask(self, queries: Mapping[str, str]) -> dict[str, Sequence[Sample]]: ...


class Scaler:
    """Holds the policy's memory. ``changed`` is called for every object that has to be looked at again."""

    def __init__(
        self,
        reader: Reader,
        source: Source | None,
        queries: Queries,
        index: Index,
        changed: Callable[[Key], None],
        *,
        routers: Lookup | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reader, self._source, self._queries = reader, source, queries
        self._index, self._changed, self._clock, self._lookup = index, changed, clock, routers
        self._told: dict[Key, Told] = {}
        self._states: dict[str, State] = {}
        self._effective: dict[Key, Json] = {}

    def told(self, key: Key) -> Told | None:
        """What was decided last for an object, ``None`` when nothing was."""
        return self._told.get(key)

    def note(self, key: Key, effective: Json | None) -> None:
        """What an object is with its profiles under its spec; ``None`` when it has none."""
        if effective is None:
            self._effective.pop(key, None)
        else:
            self._effective[key] = effective

    async def run(self, interval: float) -> None:
        """Rounds for ever, ``interval`` seconds apart."""
        while True:
            try:
                await self.round()
            except ClusterError as error:
                metrics.SCALING_FAILURES.labels("cluster").inc()
                logger.warning("no scaling this time: %s", error)
            except Exception:  # a fault in one round must not end scaling for good; counts stay as they are
                metrics.SCALING_FAILURES.labels("fault").inc()
                logger.exception("no scaling this time")
            await asyncio.sleep(interval)

    async def round(self) -> None:
        """One decision for everybody. Asks nobody anything while nothing scales."""
        if not self._index.scaling:
            self._forget(set())
            metrics.SCALING_LAST.set(0)  # or the alert for a scaler that stopped would never end
            return
        world = await self._world()
        measured = await self._measured(await self._routers())
        builder, disputed = Builder(world, measured), rivals(world)
        seen: set[Key] = set()
        for group in groups(world):
            seen |= self._decide(group, builder, measured, disputed)
        self._forget(seen)
        metrics.SCALING_LAST.set_to_current_time()

    async def _world(self) -> World:
        ours = labels.OURS
        decoders, models, pools, deployments, pods, scalers = await asyncio.gather(
            self._reader.list_served(DECODER),
            self._reader.list_served(MODEL),
            self._pools(),
            self._reader.list_served("Deployment", labels=ours),
            self._reader.list_served("Pod", labels=ours),
            self._reader.list_served("HorizontalPodAutoscaler"),
        )
        listed = ((DECODER, decoders), (MODEL, models), (POOL, pools))
        everyone = [(kind, live) for kind, found in listed for live in found]
        unknown = frozenset(key_of(kind, live) for kind, live in everyone if self._is_unknown(kind, live))
        decoders, models, pools = ([self._whole(kind, live) for live in found] for kind, found in listed)
        return World(decoders, models, pools, deployments, pods, scalers, unknown)

    async def _pools(self) -> Sequence[Json]:
        """None where the cluster's CRDs are older than this operator."""
        try:
            return await self._reader.list_served(POOL)
        except NotFoundError:
            return ()

    def _whole(self, kind: str, live: Json) -> Json:
        """With what its profiles add."""
        known = self._effective.get(key_of(kind, live))
        return live if known is None else {**live, "spec": spec_of(known)}

    def _is_unknown(self, kind: str, live: Json) -> bool:
        """Its spec or its profiles are newer than the last reconcile, which will be over by the next round."""
        known = self._effective.get(key_of(kind, live))
        if known is None:
            return bool(spec_of(live).get("profileRefs"))
        return bool(metadata(known).get("generation") != metadata(live).get("generation"))

    async def _routers(self) -> int:
        """How many are Ready, and so have load; 0 where nobody knows."""
        if self._lookup is None:
            return 0
        try:
            pods = await self._reader.list("Pod", self._lookup.namespace, labels=self._lookup.labels)
        except ClusterError as error:
            logger.warning("cannot count routers: %s", error)
            return 0
        return sum(1 for pod in pods if ready_since(pod) is not None and not is_terminating(pod))

    async def _measured(self, routers: int) -> Measured:
        """Half an answer is none: figures of different moments or replicas are not put together."""
        if self._source is None:
            return Measured(fault=NO_URL)
        queries = self._queries
        asked = {**queries.prefill, **{f"decode {name}": text for name, text in queries.decode.items()}}
        try:
            others = {"silent": queries.silent, "told": queries.told, "work": queries.work}
            answers = await self._source.ask({**asked, **others})
        except MetricsError as error:
            metrics.SCALING_FAILURES.labels("metrics").inc()
            logger.warning("no metrics this time: %s", error)
            return Measured(fault=f"Prometheus: {error}")
        prefill = {name: answers[name] for name in queries.prefill}
        decode = {name: answers[f"decode {name}"] for name in queries.decode}
        return Measured(
            prefill=lambda task: promql.prefill_signals(prefill, task),
            decode=lambda decoder: promql.decode_signals(decode, decoder),
            partial=_partial(_total(answers["silent"]), _total(answers["told"]), routers),
            work={(s.labels.get("namespace", ""), s.labels.get("pod", "")): s.value for s in answers["work"]},
            window=queries.window,
        )

    def _decide(self, group: Group, builder: Builder, measured: Measured, disputed: Mapping[Key, str]) -> set[Key]:
        fleet = builder.fleet(group)
        outcome = decide(fleet, self._remembered(group), self._clock())
        self._states.update(outcome.states)
        keys = {str(key): key for key, _ in group.members()}
        for name, key in keys.items():
            told = _told(name, key, fleet, outcome, measured, disputed)
            self._tell(key, replace(told, loads=builder.loads(key)) if key.kind == POOL else told)
        return set(keys.values())

    def _remembered(self, group: Group) -> dict[str, State]:
        """Of an object that this process has not decided about yet: what the status says was learnt."""
        found: dict[str, State] = {}
        for key, live in group.members():
            before = told_before(live)
            found[str(key)] = self._states.get(str(key)) or member.seeded(before.inputs if before else {})
        return found

    def _tell(self, key: Key, told: Told) -> None:
        decision = told.decision
        before, self._told[key] = self._told.get(key), told
        _export(key, told, before)
        if told.differs(before):
            logger.info("%s: %d pods: %s: %s", key, decision.replicas, decision.why, decision.message)
            self._changed(key)

    def _forget(self, seen: set[Key]) -> None:
        for key in self._told.keys() - seen:
            _export(key, None, self._told.pop(key))
            self._states.pop(str(key), None)


def _total(samples: Sequence[Sample]) -> float:
    return sum(sample.value for sample in samples)


def _partial(silent: float, told: float, ready: int) -> str:
    """Which load is in no sum: of routers that answered before, and of ``ready`` ones that Prometheus does not know.
    Where it also knows the routers of others, more are ``told`` than are ready, and an unknown one is not noticed."""
    if silent:
        return f"{silent:g} router replicas cannot be scraped"
    return f"Prometheus has series of {told:g} of {ready} Ready routers" if told < ready else ""


def _export(key: Key, told: Told | None, before: Told | None) -> None:
    """Decision and figures of one object that scales by itself; of one that does not, or has gone, nothing stays."""
    decision = told.decision if told is not None and told.acts else None
    inputs: Mapping[str, str] = decision.inputs if decision else {}
    for name in (before.decision.inputs.keys() if before else set[str]()) - inputs.keys():
        metrics.SCALING_INPUT.remove(key.kind, key.namespace, key.name, name)
    for name, value in inputs.items():
        metrics.SCALING_INPUT.labels(key.kind, key.namespace, key.name, name).set(float(value))
    if decision is None:
        metrics.SCALING_DESIRED.remove(key.kind, key.namespace, key.name)
        return
    metrics.SCALING_DECISIONS.labels(key.kind, str(decision.why)).inc()
    metrics.SCALING_DESIRED.labels(key.kind, key.namespace, key.name).set(decision.replicas)


def _told(name: str, key: Key, fleet: Fleet, outcome: Outcome, measured: Measured, disputed: Mapping[Key, str]) -> Told:
    rolling = fleet.members[name].pods.surge > 0
    return Told(
        decision=outcome.decisions[name],
        acts=name in outcome.states,
        room=outcome.rooms.get(name, 0) if rolling else None,
        exceeded=outcome.exceeded if name == fleet.pool else "",
        rival=disputed.get(key, ""),
        work={pod: value for (space, pod), value in measured.work.items() if space == key.namespace},
    )
