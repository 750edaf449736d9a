"""One writer: a ``coordination.k8s.io`` Lease is held while the operator works; losing it ends the process.

The client library's election is not used: its requests may outlive the renew deadline, a network error ends its loop,
and it never gives the Lease back, so that every restart waits out the whole lease duration.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from sunfleet_operator.cluster import ClusterError, ConflictError
from sunfleet_operator.settings import Settings
from sunfleet_operator.types import Json, Manifest

logger = logging.getLogger(__name__)


class LeaseStore(Protocol):
    """What the election needs of :class:`~sunfleet_operator.cluster.Cluster`."""

    async def get(self, kind: str, namespace: str, name: str) -> Json | None: ...
    async def create(self, manifest: Manifest) -> Json: ...
    async def replace(self, manifest: Manifest) -> Json: ...


class LeaderElection:
    """Acquire, keep and release one Lease. Times of other holders are judged by our own clock since we saw a change."""

    def __init__(self, store: LeaseStore, settings: Settings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._settings, self._clock = store, settings, clock
        self._seen: tuple[object, ...] = ()
        self._seen_at = 0.0

    async def acquire(self) -> None:
        """Return once the Lease is ours."""
        told = False
        while not await self._try():
            if not told:
                logger.info("waiting for lease %s", self._settings.lease_name)
                told = True
            await asyncio.sleep(self._settings.lease_retry_seconds)
        logger.info("holding lease %s as %s", self._settings.lease_name, self._settings.identity)

    async def keep(self) -> None:
        """Renew until that fails for the renew deadline, then return: the caller must stop writing at once."""
        deadline, renewed = self._settings.lease_renew_deadline_seconds, self._clock()
        while True:
            left = renewed + deadline - self._clock()
            await asyncio.sleep(min(self._settings.lease_retry_seconds, max(left, 0)))
            left = renewed + deadline - self._clock()
            if left <= 0:
                logger.error("lease %s lost: not renewed in time", self._settings.lease_name)
                return
            try:
                # Half of the time, so that a connection that died silently leaves room for an attempt over a new one.
                held = await asyncio.wait_for(self._try(), min(left, deadline / 2))
            except TimeoutError:
                continue
            if held:
                renewed = self._clock()

    async def release(self) -> None:
        """Let a standby take over at once. Best effort: without it the Lease expires by itself."""
        try:
            lease = await self._get()
            if lease is not None and lease["spec"].get("holderIdentity") == self._settings.identity:
                await self._store.replace(self._manifest(lease, holder=""))
        except ClusterError as error:
            logger.warning("lease not released, it expires by itself: %s", error)

    async def _get(self) -> Json | None:
        return await self._store.get("Lease", self._settings.leader_election_namespace, self._settings.lease_name)

    async def _try(self) -> bool:
        """Take or renew the Lease; ``False`` when somebody else holds it or the API server does not answer."""
        try:
            lease = await self._get()
            if lease is None:
                await self._store.create(self._manifest(None, holder=self._settings.identity))
            elif self._free(lease):
                await self._store.replace(self._manifest(lease, holder=self._settings.identity))
            else:
                return False
        except ConflictError:
            return False
        except ClusterError as error:
            logger.warning("lease request failed: %s", error)
            return False
        return True

    def _free(self, lease: Json) -> bool:
        spec = lease.get("spec") or {}
        if spec.get("holderIdentity") in (None, "", self._settings.identity):
            return True
        seen = (spec.get("holderIdentity"), spec.get("renewTime"))
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._clock()
        duration = float(spec.get("leaseDurationSeconds") or self._settings.lease_duration_seconds)
        return self._clock() >= self._seen_at + duration

    def _manifest(self, lease: Json | None, *, holder: str) -> Manifest:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        old = (lease or {}).get("spec") or {}
        same = old.get("holderIdentity") == holder
        meta: Manifest = {"name": self._settings.lease_name, "namespace": self._settings.leader_election_namespace}
        if lease is not None:
            meta["resourceVersion"] = lease["metadata"]["resourceVersion"]
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": meta,
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": round(self._settings.lease_duration_seconds),
                "acquireTime": old.get("acquireTime", now) if same else now,
                "renewTime": now,
                "leaseTransitions": int(old.get("leaseTransitions") or 0) + (0 if same or not holder else 1),
            },
        }
