"""The running operator: queue, workers, resync and the way from a watch event to keys."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from sunfleet_operator import metrics, promql
from sunfleet_operator.analyst import Analyst
from sunfleet_operator.build.weights import Fetcher
from sunfleet_operator.cluster import Cluster, ClusterError, NotFoundError
from sunfleet_operator.echoes import Echoes
from sunfleet_operator.engines import AdminPorts, Faults
from sunfleet_operator.health import Health
from sunfleet_operator.index import Index
from sunfleet_operator.observed import Defaults
from sunfleet_operator.prometheus import Prometheus
from sunfleet_operator.recall import Recalling
from sunfleet_operator.reconcile import Reconciler
from sunfleet_operator.routers import RouterPorts, Routers
from sunfleet_operator.scaler import Scaler
from sunfleet_operator.settings import Settings
from sunfleet_operator.types import (
    DECODER,
    MODEL,
    NAMESPACE,
    POOL,
    PROFILE,
    TUNING,
    Json,
    Key,
    is_terminating,
    key_of,
    name_of,
    namespace_of,
    owner_of,
)
from sunfleet_operator.workqueue import WorkQueue

logger = logging.getLogger(__name__)


@dataclass
class Operator:
    """Everything of one leading process; kopf's handlers get it as ``memo``."""

    settings: Settings
    cluster: Cluster
    queue: WorkQueue[Key]
    health: Health
    index: Index = field(default_factory=Index)
    echoes: Echoes = field(default_factory=Echoes)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _prometheus: Prometheus | None = None
    _engines: AdminPorts | None = None
    _ports: RouterPorts = field(default_factory=RouterPorts)
    _store: Recalling = field(init=False)
    _watched: set[tuple[str, str]] = field(default_factory=set)  # kind and namespace of watches that began once

    def __post_init__(self) -> None:
        self._store = Recalling(self.cluster, self.settings.recall_seconds)

    async def start(self) -> None:
        """Learn who uses whom, queue everything, then let the workers go."""
        for kind in (MODEL, DECODER, POOL):
            for status in ("True", "False", "Unknown"):
                metrics.READY.labels(kind, status).set_function(partial(self.index.ready, kind, status))
        await self._resync_until_it_works()
        scaler = self._scaler()
        prometheus = self.settings.prometheus
        analyst = Analyst(self._prometheus, prometheus.matchers, prometheus.window_seconds)
        self._engines = AdminPorts()
        routers = Routers(self.cluster, self.settings.router_lookup, self._ports, self.queue.add, self.index.routed)
        await routers.look()  # else a new leader would not know what to make of anything that routers have long had
        reconcile = Reconciler(
            self._store,
            self.index,
            defaults(self.settings),
            live=self.cluster,
            told=scaler.told,
            noted=scaler.note,
            measure=analyst.measure,
            engines=self._engines,
            faults=Faults(self.queue.add),
            settled=self.echoes.expect,
            heard=routers.heard,
            published=routers.published,
        )
        for number in range(self.settings.workers):
            self._tasks.append(asyncio.create_task(self.queue.work(reconcile), name=f"worker-{number}"))
        self._tasks.append(asyncio.create_task(self._resync_for_ever(), name="resync"))
        rounds = scaler.run(self.settings.scaling_interval_seconds)
        self._tasks.append(asyncio.create_task(rounds, name="scaler"))
        self._tasks.append(asyncio.create_task(routers.run(), name="routers"))

    def _scaler(self) -> Scaler:
        settings = self.settings.prometheus
        self._prometheus = Prometheus(settings) if settings.url else None
        queries = promql.queries(settings.window_seconds, settings.matchers)
        lookup = self.settings.router_lookup
        return Scaler(self.cluster, self._prometheus, queries, self.index, self.queue.add, routers=lookup)

    async def stop(self) -> None:
        """Stop after the request in flight: every write is safe to be the last."""
        self.queue.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._prometheus is not None:
            await self._prometheus.close()
        if self._engines is not None:
            await self._engines.close()
        await self._ports.close()

    def seen(self, kind: str, live: Json, type_: str | None) -> None:
        """A watch event: queue the object, or its owner, and whoever depends on it.

        ``type_`` is Kubernetes' word for what happened, ``None`` for an object that was listed when the watch began.
        """
        metrics.WATCH_EVENTS.labels(kind).inc()
        metrics.LAST_WATCH_EVENT.set_to_current_time()
        self.health.saw_event()
        gone = type_ == "DELETED"
        news = self._store.told(kind, live, gone=gone)
        if kind == "NetworkPolicy" and not news:
            return  # what this process wrote a moment ago
        concerned = self._concerned(kind, live, gone=gone)
        if kind in {MODEL, DECODER} and self.echoes.heard(key_of(kind, live), live, gone=gone):
            concerned.discard(key_of(kind, live))
        for key in concerned:
            if self._serves(key):
                self.queue.add(key)

    def listed(self, kind: str, namespace: str) -> None:
        """A watch begins (of a namespace; empty: of all), and will tell what is there. If it does so anew, it never
        tells what went in between, so everybody is looked at again."""
        self._store.relisted(kind, namespace)
        watch = (kind, namespace)
        if watch in self._watched:
            logger.info("the watch of %ss begins anew%s", kind, f" in namespace {namespace}" if namespace else "")
            for key in self.index.known():
                self.queue.add(key)
        self._watched.add(watch)

    def _serves(self, key: Key) -> bool:
        """What an object refers to may lie in a namespace of another operator, where this one may read nothing."""
        return not key.namespace or self.cluster.serves(key.namespace)

    def _concerned(self, kind: str, live: Json, *, gone: bool) -> set[Key]:
        if kind in {MODEL, DECODER, POOL}:
            index = self.index
            changed = {MODEL: index.model_changed, DECODER: index.decoder_changed, POOL: index.pool_changed}[kind]
            return {key_of(kind, live), *changed(live, gone=gone), *self._profiles_of(kind, live, gone=gone)}
        if kind == PROFILE:
            key = key_of(PROFILE, live)
            everybody = key.namespace == self.settings.profile_namespace
            return {key, *self.index.profile_users(key, everybody=everybody)}
        if kind == TUNING:
            return {key_of(TUNING, live)}
        if kind == NAMESPACE:
            return {Key(NAMESPACE, "", name_of(live))} if is_terminating(live) and not gone else set()
        keys = set() if (owner := owner_of(live)) is None else {owner}
        if kind == "Pod":
            return keys | self.index.pools.pod_changed(live, gone=gone)
        return keys | self.index.decode_pods_changed(live, gone=gone) if kind == "Deployment" else keys

    def _profiles_of(self, kind: str, live: Json, *, gone: bool) -> set[Key]:
        """Profiles whose count of users changed, wherever they lie."""
        names_changed = self.index.profiles_changed(kind, live, gone=gone)
        spaces = {namespace_of(live), self.settings.profile_namespace} - {""}
        return {Key(PROFILE, space, name) for space in spaces for name in names_changed}

    async def resync(self) -> None:
        """Look at everything again."""
        self.index.listing()
        self._store.forget()
        models, decoders, pools, profiles, tunings = await asyncio.gather(
            self.cluster.list_served(MODEL),
            self.cluster.list_served(DECODER),
            *(self._of_newer_kind(kind) for kind in (POOL, PROFILE, TUNING)),
        )
        self.index.rebuild(models, decoders, pools)
        everyone = {DECODER: decoders, POOL: pools, MODEL: models, PROFILE: profiles, TUNING: tunings}
        for kind, found in everyone.items():
            for live in found:
                self.queue.add(key_of(kind, live))

    async def _of_newer_kind(self, kind: str) -> Sequence[Json]:
        """None where the cluster's CRDs are older than this operator."""
        try:
            return await self.cluster.list_served(kind)
        except NotFoundError:
            return ()

    async def _resync_until_it_works(self) -> None:
        delay = 1.0
        while True:
            try:
                return await self.resync()
            except ClusterError as error:
                logger.warning("cannot list SharedDecoders and SunModels (are the CRDs installed?): %s", error)
                await asyncio.sleep(delay)
                delay = min(delay * 2, 30)

    async def _resync_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.settings.resync_seconds)
            await self._resync_until_it_works()


def defaults(settings: Settings) -> Defaults:
    fetcher = Fetcher(
        settings.weights_image,
        settings.image_pull_policy,
        settings.hf_endpoint,
        settings.weights_download,
        settings.engine_key_secret,
        settings.engine_tls_secret,
    )
    return Defaults(
        settings.engine_image,
        fetcher,
        settings.image_pull_policy,
        settings.profile_namespace,
        engine_key=settings.engine_key_secret,
        engine_tls=settings.engine_tls_secret,
        visitors=settings.visitors,
        tuner_image=settings.tuner_image,
    )
