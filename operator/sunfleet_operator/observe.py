"""All reads of one reconcile, into one frozen value."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from sunfleet_api import names
from sunfleet_api.worker import progress_of
from sunfleet_operator.build import labels
from sunfleet_operator.engines import Engines, Faults
from sunfleet_operator.index import Index
from sunfleet_operator.observed import (
    Beside,
    Children,
    FoundProfile,
    Needs,
    ObservedDecoder,
    ObservedModel,
    ObservedNamespace,
    ObservedPool,
    ObservedProfile,
    ObservedTuning,
    User,
)
from sunfleet_operator.plan import runs
from sunfleet_operator.plan.jobs import podless
from sunfleet_operator.plan.pods import downloading
from sunfleet_operator.references import decoder_of, decoders_of, pool_of, profiles_of
from sunfleet_operator.types import (
    DECODER,
    MODEL,
    NAMESPACE,
    POOL,
    PROFILE,
    TUNING,
    Json,
    Key,
    controller_of,
    is_terminating,
    labels_of,
    metadata,
    name_of,
    namespace_of,
    status_of,
)

# Runs and downloads tell how far they are every few seconds; libraries may say something in between.
_LOG_LINES = 50


class Reader(Protocol):
    """The reading half of :class:`~sunfleet_operator.cluster.Cluster`."""

    async def get(self, kind: str, namespace: str, name: str) -> Json | None: ...
    async def list(
        self,
        kind: str,
        namespace: str = "",
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> Sequence[Json]: ...
    async def list_served(self, kind: str, *, labels: Mapping[str, str] | None = None) -> Sequence[Json]: ...
    async def log(self, namespace: str, pod: str, *, lines: int, container: str = "") -> str: ...
    def serves(self, namespace: str) -> bool: ...


async def observe_decoder(reader: Reader, index: Index, key: Key, presets: str = "") -> ObservedDecoder | None:
    """``None`` when the object is gone. ``presets``: namespace of the ServingProfiles that are for everybody."""
    live = await reader.get(DECODER, key.namespace, key.name)
    if live is None:
        return None
    children, users, profiles = await asyncio.gather(
        _children(reader, key, live), _users(reader, index, key, live), _profiles(reader, key, live, presets)
    )
    terminating = is_terminating(live) and await _namespace_terminating(reader, key.namespace)
    return ObservedDecoder(key, _with_kind(DECODER, live), children, users, terminating, profiles)


async def observe_model(
    reader: Reader, index: Index, key: Key, presets: str = "", faults: Faults | None = None
) -> ObservedModel | None:
    """``None`` when the object is gone. ``presets``: as above. ``faults``: what pools know of adapters."""
    live = await reader.get(MODEL, key.namespace, key.name)
    if live is None:
        return None
    target, pool_key = decoder_of(live), pool_of(live)
    abroad = any(other is not None and other.namespace != key.namespace for other in (target, pool_key))
    decoder, children, rivals, space = await asyncio.gather(
        # Asking for one of another operator's namespaces would be forbidden, and the task never told why.
        reader.get(DECODER, target.namespace, target.name) if reader.serves(target.namespace) else _nothing(),
        _children(reader, key, live),
        _rivals(reader, index, key, live),
        reader.get(NAMESPACE, "", key.namespace) if abroad else _nothing(),
    )
    contract, deployments, profiles, (pool, pods) = await asyncio.gather(
        _contract(reader, decoder), _decode_deployments(reader, decoder), _profiles(reader, key, live, presets),
        _pool(reader, pool_key),
    )  # fmt: skip
    return ObservedModel(
        key,
        _with_kind(MODEL, live),
        children,
        decoder and _with_kind(DECODER, decoder),
        contract,
        deployments,
        rivals,
        namespace_labels=labels_of(space) if space else {},
        profiles=profiles,
        decoder_served=reader.serves(target.namespace),
        pool=pool and _with_kind(POOL, pool),
        pool_pods=pods,
        pool_served=pool_key is None or reader.serves(pool_key.namespace),
        pool_faults=faults.find(pool_key, key) if faults else {},
    )


async def observe_needs(reader: Reader, observed: ObservedModel, needs: Needs) -> ObservedModel:
    """With what the object's own spec, as its profiles make it, needs besides."""
    key, other = observed.key, needs.canary_decoder
    config_map, pods, beside, space = await asyncio.gather(
        reader.get("ConfigMap", key.namespace, needs.config_map) if needs.config_map else _nothing(),
        _decode_pods(reader, observed.decoder if needs.decode_pods else None),
        _beside(reader, other, pods=needs.decode_pods) if other else _none_beside(),
        reader.get(NAMESPACE, "", key.namespace) if other and other.namespace != key.namespace else _nothing(),
    )
    space_labels = labels_of(space) if space else observed.namespace_labels
    return replace(observed, config_map=config_map, decode_pods=pods, beside=beside, namespace_labels=space_labels)


async def _none_beside() -> None:
    return None


async def _beside(reader: Reader, key: Key, *, pods: bool) -> Beside:
    """The decoder of a canary."""
    if not reader.serves(key.namespace):
        return Beside(served=False)
    found = await reader.get(DECODER, key.namespace, key.name)
    contract, deployments, engines = await asyncio.gather(
        _contract(reader, found), _decode_deployments(reader, found), _decode_pods(reader, found if pods else None)
    )
    return Beside(found and _with_kind(DECODER, found), contract, deployments, engines)


async def observe_tuning(reader: Reader, key: Key) -> ObservedTuning | None:
    """``None`` when the object is gone."""
    live = await reader.get(TUNING, key.namespace, key.name)
    if live is None:
        return None
    target, uid, served = decoder_of(live), str(metadata(live)["uid"]), labels.owned_by(key)
    decoder, (jobs, pods), space = await asyncio.gather(
        reader.get(DECODER, target.namespace, target.name) if reader.serves(target.namespace) else _nothing(),
        _jobs_and_pods(reader, key, served, served),
        reader.get(NAMESPACE, "", key.namespace) if target.namespace != key.namespace else _nothing(),
    )
    speaking = runs.running(pods)
    contract, log = await asyncio.gather(
        _contract(reader, decoder),
        reader.log(key.namespace, name_of(speaking), lines=_LOG_LINES) if speaking else _silence(),
    )
    return ObservedTuning(
        key,
        _with_kind(TUNING, live),
        decoder and _with_kind(DECODER, decoder),
        contract,
        namespace_labels=labels_of(space) if space else {},
        decoder_served=reader.serves(target.namespace),
        job=next(iter(_owned(jobs, uid)), None),
        pods=tuple(pods),
        log=log,
        predecessor=any(_of_predecessor(job, key, uid) for job in jobs),
    )


async def observe_pool(
    reader: Reader, index: Index, key: Key, engines: Engines, presets: str = ""
) -> ObservedPool | None:
    """``None`` when the object is gone. ``presets``: as above."""
    live = await reader.get(POOL, key.namespace, key.name)
    if live is None:
        return None
    target = decoder_of(live)
    decoder, children, space = await asyncio.gather(
        reader.get(DECODER, target.namespace, target.name) if reader.serves(target.namespace) else _nothing(),
        _children(reader, key, live),
        reader.get(NAMESPACE, "", key.namespace) if target.namespace != key.namespace else _nothing(),
    )
    contract, deployments, profiles, held = await asyncio.gather(
        _contract(reader, decoder), _decode_deployments(reader, decoder), _profiles(reader, key, live, presets),
        engines.ask(children.pods),
    )  # fmt: skip
    return ObservedPool(
        key,
        _with_kind(POOL, live),
        children,
        decoder and _with_kind(DECODER, decoder),
        contract,
        deployments,
        namespace_labels=labels_of(space) if space else {},
        profiles=profiles,
        decoder_served=reader.serves(target.namespace),
        users=index.pools.users(key),
        held=held,
    )


async def _pool(reader: Reader, key: Key | None) -> tuple[Json | None, tuple[Json, ...]]:
    """The pool that a task refers to, and its engine pods."""
    if key is None or not reader.serves(key.namespace):
        return None, ()
    pool, pods = await asyncio.gather(
        reader.get(POOL, key.namespace, key.name),
        reader.list("Pod", key.namespace, labels=labels.pool_selector(key)),
    )
    return pool, tuple(pods)


async def observe_profile(reader: Reader, index: Index, key: Key, presets: str = "") -> ObservedProfile | None:
    """``None`` when it is gone."""
    live = await reader.get(PROFILE, key.namespace, key.name)
    if live is None:
        return None
    return ObservedProfile(_with_kind(PROFILE, live), len(index.profile_users(key, everybody=key.namespace == presets)))


async def observe_namespace(reader: Reader, key: Key) -> ObservedNamespace | None:
    """``None`` when it is gone.

    Pods first: if the namespace is then on its way out, so are they. The other way round they could be those of
    another namespace that was made under its name in between.
    """
    pods = await reader.list("Pod", key.name, labels=labels.OURS)
    live = await reader.get(NAMESPACE, "", key.name)
    return None if live is None else ObservedNamespace({**live, "kind": NAMESPACE}, tuple(pods))


async def _profiles(reader: Reader, key: Key, live: Json, presets: str) -> tuple[FoundProfile, ...]:
    """Each of the object's own namespace, or of the operator's."""

    async def find(name: str) -> FoundProfile:
        found = await reader.get(PROFILE, key.namespace, name)
        if found is None and presets:
            found = await reader.get(PROFILE, presets, name)
        return FoundProfile(name, found)

    return tuple(await asyncio.gather(*map(find, profiles_of(live))))


async def _nothing() -> None:
    return None


async def _silence() -> str:
    return ""


def _with_kind(kind: str, live: Json) -> Json:
    """A copy that names its kind; an object from a list does not."""
    return {"apiVersion": names.API_VERSION, **live, "kind": kind}


async def _children(reader: Reader, key: Key, owner: Json) -> Children:
    """Objects that carry our labels *and* are controlled by this very owner.

    Records that nobody controls count as well: a backup was restored, and the owner has another UID than it had.
    """
    query, uid = labels.owned_by(key), str(metadata(owner)["uid"])
    mine = {labels.owner_label(key.kind): key.name}
    deployments, (jobs, pods), records, (service, policy) = await asyncio.gather(
        reader.list("Deployment", key.namespace, labels=query),
        _jobs_and_pods(reader, key, query, mine),
        reader.list("ControllerRevision", key.namespace, labels=query),
        _beside_the_pods(reader, key),
    )
    found = Children(
        deployments=_owned(deployments, uid),
        jobs=_owned(jobs, uid),
        records=(*_owned(records, uid), *_owned(records, None)),
        pods=tuple(pods),
        service=service,
        policy=policy,
    )
    complaints, progress, budget = await asyncio.gather(
        _complaints(reader, key, jobs, pods),
        _progress(reader, pods),
        reader.get("PodDisruptionBudget", key.namespace, labels.pool_name(key)) if found.has_pods else _nothing(),
    )
    everything = (*deployments, *jobs, *records, *(live for live in (service, budget, policy) if live is not None))
    predecessor = any(_of_predecessor(live, key, uid) for live in everything)
    return replace(found, budget=budget, complaints=complaints, progress=progress, predecessor=predecessor)


async def _jobs_and_pods(
    reader: Reader, key: Key, jobs: Mapping[str, str], pods: Mapping[str, str]
) -> tuple[Sequence[Json], Sequence[Json]]:
    """By their labels. Pods are read last: those of a Job that is seen ended have said how by then."""
    found = await reader.list("Job", key.namespace, labels=jobs)
    return found, await reader.list("Pod", key.namespace, labels=pods)


async def _progress(reader: Reader, pods: Sequence[Json]) -> dict[str, str]:
    """How far the first download is: one request, and the status tells of one."""
    found = downloading(pods)
    if found is None:
        return {}
    pod, status = found
    container = str(status.get("name"))
    log = await reader.log(namespace_of(pod), name_of(pod), lines=_LOG_LINES, container=container)
    return {name_of(pod): progress_of(log)}


async def _complaints(reader: Reader, key: Key, jobs: Sequence[Json], pods: Sequence[Json]) -> dict[str, str]:
    """Why Jobs that have begun get no pod: a quota, a LimitRange, a policy. Only Events tell."""
    waiting = [job for job in jobs if podless(job, pods)]
    found = await asyncio.gather(
        *(
            reader.list(
                "Event", key.namespace, fields={"involvedObject.uid": metadata(job)["uid"], "reason": "FailedCreate"}
            )
            for job in waiting
        )
    )
    return {name_of(job): _latest(events) for job, events in zip(waiting, found, strict=True) if events}


def _latest(events: Sequence[Json]) -> str:
    newest = max(events, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
    return str(newest.get("message") or "")


async def _beside_the_pods(reader: Reader, key: Key) -> tuple[Json | None, Json | None]:
    """Service and NetworkPolicy, whoever made them."""
    name = labels.pool_name(key)
    return await asyncio.gather(
        reader.get("Service", key.namespace, name),
        reader.get("NetworkPolicy", key.namespace, name),
    )


def _owned(found: Sequence[Json], uid: str | None) -> tuple[Json, ...]:
    """Those that are going already do not count: deleting them again, or waiting for them, helps nobody."""
    return tuple(item for item in found if controller_of(item).get("uid") == uid and not is_terminating(item))


def _of_predecessor(live: Json, key: Key, uid: str) -> bool:
    """Controlled by another object of this kind and name, which is gone by now."""
    owner = controller_of(live)
    return (owner.get("kind"), owner.get("name")) == (key.kind, key.name) and owner.get("uid") != uid


async def _users(reader: Reader, index: Index, key: Key, live: Json) -> tuple[User, ...]:
    """From the index, which is as late as the watch; whether a decoder may be deleted is decided by the objects
    themselves."""
    if not is_terminating(live):
        return index.users(key)
    models = await reader.list_served(MODEL)
    return tuple(User.of(key, model) for model in models if key in decoders_of(model))


async def _namespace_terminating(reader: Reader, namespace: str) -> bool:
    space = await reader.get(NAMESPACE, "", namespace)
    return space is None or is_terminating(space)


async def _rivals(reader: Reader, index: Index, key: Key, live: Json) -> tuple[Json, ...]:
    found = await asyncio.gather(
        *(reader.get(MODEL, rival.namespace, rival.name) for rival in sorted(index.rivals(key, live)))
    )
    return tuple(rival for rival in found if rival is not None)


async def _contract(reader: Reader, decoder: Json | None) -> Json | None:
    """The record of the revision that the decoder publishes."""
    revision = str(status_of(decoder).get("updateRevision") or "") if decoder else ""
    if decoder is None or not revision:
        return None
    meta = metadata(decoder)
    name = labels.child_name(Key(DECODER, meta["namespace"], meta["name"]), revision)
    found = await reader.get("ControllerRevision", meta["namespace"], name)
    return found if found is not None and controller_of(found).get("uid") == meta["uid"] else None


async def _decode_deployments(reader: Reader, decoder: Json | None) -> tuple[Json, ...]:
    if decoder is None:
        return ()
    meta = metadata(decoder)
    key = Key(DECODER, meta["namespace"], meta["name"])
    found = await reader.list("Deployment", key.namespace, labels=labels.pool_selector(key))
    return _owned(found, str(meta["uid"]))


async def _decode_pods(reader: Reader, decoder: Json | None) -> tuple[Json, ...]:
    if decoder is None:
        return ()
    key = Key(DECODER, metadata(decoder)["namespace"], metadata(decoder)["name"])
    return tuple(await reader.list("Pod", key.namespace, labels=labels.pool_selector(key)))
