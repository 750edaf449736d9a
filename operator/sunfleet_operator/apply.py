"""Carries a plan out. The order of the plan is kept, so that stopping between any two writes leaves something that
converges."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol

from sunfleet_api import names
from sunfleet_operator import metrics
from sunfleet_operator.cluster import ClusterError, ConflictError, NotFoundError, RefusedError
from sunfleet_operator.engines import Engines, NoEngines
from sunfleet_operator.plan.actions import Announce, Apply, Delete, Event, Load, Mark, Plan, Scale, Write
from sunfleet_operator.types import Json, Manifest, Ref, is_terminating, metadata, spec_of

_log = logging.getLogger(__name__)


class Writer(Protocol):
    """The writing half of :class:`~sunfleet_operator.cluster.Cluster`."""

    async def apply(self, manifest: Manifest, manager: str, *, subresource: str = "") -> Json: ...
    async def create(self, manifest: Manifest) -> Json: ...
    async def delete(self, ref: Ref, *, grace_seconds: int | None = None) -> None: ...
    async def set_finalizers(self, kind: str, live: Json, finalizers: Sequence[str], manager: str) -> Json: ...


_NO_ENGINES = NoEngines()
# It says nothing itself: a feature that is switched off just vanishes from what is stored.
_NO_IMAGES = (
    "the API server has no image volumes and took them out of the pod ({}): leave out download.imageVolume, or upgrade "
    "to Kubernetes 1.35 (before it the feature gate ImageVolume)"
)


async def carry_out(writer: Writer, live: Json, plan: Plan, now: datetime, engines: Engines = _NO_ENGINES) -> Json:
    """Write everything in ``plan`` for the object ``live``; the object as the status made it.

    The first failure ends it; the key is then tried again.
    """
    told = live
    if plan.finalizer is True and not is_terminating(live):
        await _set_finalizer(writer, live, present=True)
    await _write(writer, plan.before, engines)
    if plan.status is not None:
        told = await writer.apply(plan.status, names.STATUS_FIELD_MANAGER, subresource="status")
        metrics.WRITES.labels(live["kind"], "status").inc()
    await _write(writer, plan.after, engines)
    for event in plan.events:
        await _tell(writer, live, event, now)
    if plan.finalizer is False:
        await _set_finalizer(writer, live, present=False)
    return told


async def _write(writer: Writer, writes: Iterable[Write], engines: Engines) -> None:
    for write in writes:
        match write:
            case Apply(manifest):
                made = await writer.apply(manifest, names.FIELD_MANAGER)
                if dropped := _image_volumes(manifest) - _image_volumes(made):
                    raise RefusedError(
                        f"apply {manifest['metadata']['name']}", 0, _NO_IMAGES.format(", ".join(dropped))
                    )
                metrics.WRITES.labels(manifest["kind"], "apply").inc()
            case Scale(manifest):
                await writer.apply(manifest, names.SCALE_FIELD_MANAGER)
                metrics.WRITES.labels(manifest["kind"], "scale").inc()
            case Mark(manifest):
                await writer.apply(manifest, names.SCALE_FIELD_MANAGER)
                metrics.WRITES.labels(manifest["kind"], "mark").inc()
            case Announce(manifest):
                await _announce(writer, manifest)
            case Load(pod, address, wanted):
                _log.info("pod %s shall hold %d adapters", pod, len(wanted.adapters))
                await engines.load(address, wanted)
                metrics.WRITES.labels("Pod", "load").inc()
            case Delete(ref, grace_seconds):
                await writer.delete(ref, grace_seconds=grace_seconds)
                metrics.WRITES.labels(ref.kind, "delete").inc()


def _image_volumes(deployment: Json) -> set[str]:
    """Names of a Deployment's image volumes; none of anything else."""
    template = (spec_of(deployment).get("template") or {}) if deployment.get("kind") == "Deployment" else {}
    return {volume["name"] for volume in spec_of(template).get("volumes") or () if "image" in volume}


async def _announce(writer: Writer, manifest: Manifest) -> None:
    """A pod that has gone meanwhile must not keep the others of its pool from being written."""
    try:
        await writer.apply(manifest, names.ADAPTERS_FIELD_MANAGER)
    except (ConflictError, NotFoundError) as error:
        _log.info("pod %s is gone: %s", manifest["metadata"]["name"], error)
    else:
        metrics.WRITES.labels("Pod", "announce").inc()


async def _set_finalizer(writer: Writer, live: Json, *, present: bool) -> None:
    others = [name for name in metadata(live).get("finalizers") or () if name != names.FINALIZER]
    wanted = [*others, names.FINALIZER] if present else others
    await writer.set_finalizers(live["kind"], live, wanted, names.FIELD_MANAGER)
    metrics.WRITES.labels(live["kind"], "finalizer").inc()


async def _tell(writer: Writer, live: Json, event: Event, now: datetime) -> None:
    """Best effort: an Event that cannot be written must not stop the work that it is about."""
    meta, stamp = metadata(live), now.strftime("%Y-%m-%dT%H:%M:%SZ")
    unique = hashlib.sha256(f"{meta['uid']}{event}{now.timestamp()}".encode()).hexdigest()[:16]
    manifest: Manifest = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{meta['name']}.{unique}", "namespace": meta["namespace"]},
        "involvedObject": {
            "apiVersion": names.API_VERSION,
            "kind": live["kind"],
            "name": meta["name"],
            "namespace": meta["namespace"],
            "uid": meta["uid"],
            "resourceVersion": meta.get("resourceVersion", ""),
        },
        "type": event.kind,
        "reason": event.reason,
        "message": event.message,
        "source": {"component": names.FIELD_MANAGER},
        "reportingComponent": names.FIELD_MANAGER,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
    try:
        await writer.create(manifest)
    except ClusterError as error:
        _log.warning("event %s of %s not written: %s", event.reason, meta["name"], error)
