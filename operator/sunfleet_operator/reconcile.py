"""One reconcile: read, decide, write. The same for a new object, a changed one, a resync and a restart."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeAlias

from sunfleet_operator import apply, metrics
from sunfleet_operator.cluster import RefusedError, TerminatingError
from sunfleet_operator.engines import Engines, Faults, NoEngines
from sunfleet_operator.figures import ByRevision
from sunfleet_operator.heard import Heard
from sunfleet_operator.index import Index
from sunfleet_operator.observe import (
    Reader,
    observe_decoder,
    observe_model,
    observe_namespace,
    observe_needs,
    observe_pool,
    observe_profile,
    observe_tuning,
)
from sunfleet_operator.observed import (
    Defaults,
    ObservedDecoder,
    ObservedModel,
    ObservedNamespace,
    ObservedPool,
    ObservedProfile,
    ObservedTuning,
)
from sunfleet_operator.plan import decoder, model, namespace, pool, profile, tuning
from sunfleet_operator.plan.actions import Delete, Load, Plan, Scale
from sunfleet_operator.plan.common import told_refusal
from sunfleet_operator.recall import Store
from sunfleet_operator.told import Told
from sunfleet_operator.types import DECODER, MODEL, NAMESPACE, POOL, PROFILE, TUNING, Json, Key, name_of, spec_of

logger = logging.getLogger(__name__)
Decided: TypeAlias = tuple[Json, Plan] | None


Observed: TypeAlias = (
    ObservedDecoder | ObservedModel | ObservedPool | ObservedProfile | ObservedTuning | ObservedNamespace
)


def utc_now() -> datetime:
    return datetime.now(UTC)


async def unmeasured(_: Json, __: datetime) -> ByRevision | None:
    """Where nobody measures."""
    return None


class Reconciler:
    """Holds what every reconcile needs; has no state of its own."""

    def __init__(
        self,
        store: Store,
        index: Index,
        defaults: Defaults,
        *,
        live: Reader | None = None,
        now: Callable[[], datetime] = utc_now,
        told: Callable[[Key], Told | None] = lambda _: None,
        noted: Callable[[Key, Json | None], None] = lambda _, __: None,
        measure: Callable[[Json, datetime], Awaitable[ByRevision | None]] = unmeasured,
        engines: Engines | None = None,
        faults: Faults | None = None,
        settled: Callable[[Key, Json], None] = lambda _, __: None,
        heard: Callable[[Key, Json], Heard | None] = lambda _, __: None,
        published: Callable[[Key, Json | None], None] = lambda _, __: None,
    ) -> None:
        """``live`` reads what is so now, where ``store`` may tell what was so a moment ago.

        ``told`` is what the scaler decided; ``noted`` hears what an object is together with its profiles; ``measure``
        says how requests of a canary went; ``engines`` reaches the pods of pools, and ``faults`` is what their
        reconciles tell those of tasks; ``settled`` hears of an object whose new status leaves nothing to do; ``heard``
        is what routers say of one, and ``published`` hears of each as its status is now (None: it is gone).
        """
        self._store, self._index, self._defaults, self._now = store, index, defaults, now
        self._live: Reader = live or store
        self._measure, self._told, self._noted, self._settled = measure, told, noted, settled
        self._engines, self._faults = engines or NoEngines(), faults or Faults()
        self._heard, self._published = heard, published

    async def __call__(self, key: Key) -> float | None:
        """Seconds after which the key is due again, or ``None``; :class:`ClusterError` when a request failed."""
        started = time.monotonic()
        try:
            plan = await self._run(key)
        except Exception:  # only counted here: the queue logs it and tries again
            metrics.RECONCILES.labels(key.kind, "error").inc()
            raise
        metrics.RECONCILES.labels(key.kind, "ok").inc()
        metrics.RECONCILE_SECONDS.labels(key.kind).observe(time.monotonic() - started)
        return plan.requeue_after if plan else None

    async def _run(self, key: Key) -> Plan | None:
        found = await self._look(key)
        if found is None:
            if key.kind == POOL:
                self._faults.note(key, {})
            self._published(key, None)
            return None
        seen, plan = found
        live = seen.live
        if key.kind == POOL:
            self._faults.note(key, plan.faults or {})
        self._noted(key, plan.effective)
        if plan.empty:
            self._published(key, live)
            return plan
        logger.info("%s: %s", key, summary(plan))
        told = told_refusal(live)
        if told and (plan.before or plan.after):
            plan = await self._retried(key, plan, told)
        try:
            after = await apply.carry_out(self._store, live, plan, self._now(), self._engines)
            for result in plan.checks:
                metrics.VERIFICATIONS.labels(result).inc()
            if plan.canary:
                metrics.CANARIES.labels(plan.canary).inc()
        except TerminatingError:
            logger.info("%s: its namespace is being deleted, so nothing new can be made there", key)
            return replace(plan, requeue_after=None)
        except RefusedError as error:
            await self._tell(key, f"the API server refused a child: {error}")
            raise
        self._published(key, after)
        told_about = key.kind in {MODEL, DECODER} and plan.status is not None
        if told_about and _leaves_nothing(plan, self._plan(_told(seen, after))):
            self._settled(key, after)
        return plan

    async def _look(self, key: Key) -> tuple[Observed, Plan] | None:
        """What is there and what to do. What is remembered may decide to wait or to make something; before anything is
        taken away everything is read again."""
        seen = await self._observe(key, self._store)
        plan = self._plan(seen) if seen is not None else None
        if seen is not None and plan is not None and takes_away(seen, plan) and self._live is not self._store:
            seen = await self._observe(key, self._live)
            plan = self._plan(seen) if seen is not None else None
        return None if seen is None or plan is None else (seen, plan)

    async def _retried(self, key: Key, plan: Plan, told: str) -> Plan:
        """``plan`` whose status goes on to tell of the refusal until its writes went through.

        Else a refused write after the status would have it flap at every attempt; each change is a watch event, which
        runs the key again at once, whatever its backoff.
        """
        same = await self.decide(key, refusal=told)
        status = None if same is None else same[1].status
        return replace(plan, status=status, events=(), requeue_after=0)

    async def _tell(self, key: Key, refusal: str) -> None:
        """Say in the status what the API server said; the writes themselves are tried again later."""
        found = await self.decide(key, refusal=refusal)
        if found is not None:
            live, plan = found
            await apply.carry_out(self._store, live, Plan(status=plan.status, events=plan.events), self._now())

    async def decide(self, key: Key, *, refusal: str = "") -> Decided:
        """The live object and the plan for it; ``None`` when it is gone."""
        seen = await self._observe(key, self._store)
        return None if seen is None else (seen.live, self._plan(seen, refusal=refusal))

    async def _observe(self, key: Key, reader: Reader) -> Observed | None:
        presets = self._defaults.profile_namespace
        seen: Observed | None
        if key.kind == NAMESPACE:
            seen = await observe_namespace(reader, key)
        elif key.kind == PROFILE:
            seen = await observe_profile(reader, self._index, key, presets)
        elif key.kind == DECODER:
            seen = await observe_decoder(reader, self._index, key, presets)
        elif key.kind == TUNING:
            seen = await observe_tuning(reader, key)
        elif key.kind == POOL:
            seen = await observe_pool(reader, self._index, key, self._engines, presets)
        else:
            seen = await self._observe_task(key, reader, presets)
        return seen

    async def _observe_task(self, key: Key, reader: Reader, presets: str) -> ObservedModel | None:
        task = await observe_model(reader, self._index, key, presets, self._faults)
        if task is None:
            return None
        task = await observe_needs(reader, task, model.needs(task))
        return replace(task, measured=await self._measure(task.live, self._now()))

    def _plan(self, seen: Observed, *, refusal: str = "") -> Plan:
        """``refusal`` is what the API server said when this plan was tried a moment ago."""
        match seen:
            case ObservedNamespace():
                return namespace.plan(seen)
            case ObservedProfile():
                return profile.plan(seen, self._now())
            case ObservedPool():
                seen = replace(seen, told=self._told(seen.key))
                return pool.plan(seen, self._defaults, self._now(), refusal=refusal)
            case ObservedTuning():
                return tuning.plan(seen, self._defaults, self._now(), refusal=refusal)
            case ObservedDecoder():
                seen = replace(seen, told=self._told(seen.key), heard=self._heard(seen.key, seen.live))
                return decoder.plan(seen, self._defaults, self._now(), refusal=refusal)
            case ObservedModel():
                seen = replace(seen, told=self._told(seen.key), heard=self._heard(seen.key, seen.live))
                return model.plan(seen, self._defaults, self._now(), refusal=refusal)


def takes_away(seen: Observed, plan: Plan) -> bool:
    """Whether a plan ends pods, forgets a record or lets an object go; Jobs that have answered, and those
    that somebody suspends, do not count."""
    deployments = seen.children.deployments if isinstance(seen, ObservedDecoder | ObservedModel | ObservedPool) else ()
    wanted = {name_of(live): int(spec_of(live).get("replicas", 1)) for live in deployments}
    return plan.finalizer is False or any(
        (isinstance(write, Delete) and write.ref.kind != "Job")
        or (
            isinstance(write, Scale)
            and spec_of(write.manifest).get("replicas", 0) < wanted.get(name_of(write.manifest), 0)
        )
        for write in (*plan.before, *plan.after)
    )


def _told(seen: Observed, live: Json) -> Observed:
    """What was observed, with the object as its new status has made it."""
    return replace(seen, live={"apiVersion": seen.live.get("apiVersion"), **live, "kind": seen.live["kind"]})


def _leaves_nothing(done: Plan, again: Plan) -> bool:
    """Whether the plan for the object with its new status asks for nothing but what was just done.

    Then the watch event of that status is no news. Children were not read again: what they become is an event of
    their own.
    """
    made = (*done.before, *done.after)
    return again.status is None and all(write in made for write in (*again.before, *again.after))


def summary(plan: Plan) -> str:
    """What a plan does, for the log."""
    parts = [f"{type(write).__name__.lower()} {_target(write)}" for write in (*plan.before, *plan.after)]
    parts += ["status"] if plan.status is not None else []
    parts += [] if plan.finalizer is None else [f"finalizer {'set' if plan.finalizer else 'removed'}"]
    return ", ".join(parts) or "events"


def _target(write: object) -> str:
    ref = getattr(write, "ref", None)
    if ref is not None:
        return f"{ref.kind} {ref.name}"
    if isinstance(write, Load):
        return f"Pod {write.pod}"
    manifest = getattr(write, "manifest", {})
    return f"{manifest.get('kind')} {manifest.get('metadata', {}).get('name')}"
