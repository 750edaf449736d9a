"""What this process read or wrote a moment ago and nobody else should touch: not asked for again.

While hundreds of objects come up, each is looked at several times within a minute, and each look asked for the same
Service, budget and records. What others write (objects of people, Deployments' status, Jobs, pods) is always
read live. A change of the rest by somebody else is seen with the first look after ``seconds``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from sunfleet_operator.apply import Writer
from sunfleet_operator.observe import Reader
from sunfleet_operator.types import Json, Manifest, Ref

# Only the operator writes these; a record's content cannot even be changed. A NetworkPolicy is read each time all the
# same: without it everybody reaches the pods.
_OURS: Final = frozenset({"Service", "PodDisruptionBudget", "ControllerRevision"})
_Place = tuple[str, str, str]
_Query = tuple[str, str, frozenset[tuple[str, str]]]


class Store(Reader, Writer, Protocol):
    """Both halves of :class:`~sunfleet_operator.cluster.Cluster`."""


class Recalling:
    """A :class:`Store` over another one. Not thread-safe."""

    def __init__(self, store: Store, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._seconds, self._clock = store, seconds, clock
        self._objects: dict[_Place, tuple[float, Json]] = {}
        self._lists: dict[_Query, tuple[float, Sequence[Json]]] = {}
        self._swept = clock()

    async def get(self, kind: str, namespace: str, name: str) -> Json | None:
        self._sweep()
        place = (kind, namespace, name)
        known = self._objects.get(place)
        if known is not None and self._fresh(known[0]):
            return known[1]
        began, found = self._clock(), await self._store.get(kind, namespace, name)
        self._objects.pop(place, None)
        # Something that is missing is about to be made: nothing is remembered of it.
        if found is not None and kind in _OURS:
            self._objects[place] = (began, found)
        return found

    async def list(
        self,
        kind: str,
        namespace: str = "",
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> Sequence[Json]:
        if kind not in _OURS or not labels or fields:
            return await self._store.list(kind, namespace, labels=labels, fields=fields)
        query = (kind, namespace, frozenset(labels.items()))
        known = self._lists.get(query)
        if known is not None and self._fresh(known[0]):
            return known[1]
        began, found = self._clock(), await self._store.list(kind, namespace, labels=labels)
        self._lists[query] = (began, found)
        return found

    async def list_served(self, kind: str, *, labels: Mapping[str, str] | None = None) -> Sequence[Json]:
        return await self._store.list_served(kind, labels=labels)

    async def log(self, namespace: str, pod: str, *, lines: int, container: str = "") -> str:
        return await self._store.log(namespace, pod, lines=lines, container=container)

    def serves(self, namespace: str) -> bool:
        return self._store.serves(namespace)

    async def apply(self, manifest: Manifest, manager: str, *, subresource: str = "") -> Json:
        """A write that fails may have been carried out all the same, so what was known goes before it."""
        meta = manifest["metadata"]
        self._forget(manifest["kind"], meta["namespace"], meta["name"], meta.get("labels") or {})
        began, live = self._clock(), await self._store.apply(manifest, manager, subresource=subresource)
        if manifest["kind"] in _OURS:
            self._objects[manifest["kind"], meta["namespace"], meta["name"]] = (began, live)
        return live

    async def create(self, manifest: Manifest) -> Json:
        return await self._store.create(manifest)

    async def delete(self, ref: Ref, *, grace_seconds: int | None = None) -> None:
        self._forget(ref.kind, ref.namespace, ref.name, None)
        await self._store.delete(ref, grace_seconds=grace_seconds)

    async def set_finalizers(self, kind: str, live: Json, finalizers: Sequence[str], manager: str) -> Json:
        return await self._store.set_finalizers(kind, live, finalizers, manager)

    @property
    def remembered(self) -> int:
        """Objects and lists that are known now."""
        return len(self._objects) + len(self._lists)

    def _fresh(self, since: float) -> bool:
        return self._clock() - since < self._seconds

    def _forget(self, kind: str, namespace: str, name: str, labels: Mapping[str, str] | None) -> None:
        """``labels`` of ``None``: any list of the namespace may have held it."""
        if kind not in _OURS:
            return
        self._objects.pop((kind, namespace, name), None)
        held = set(labels.items()) if labels is not None else None
        for query in [
            query for query in self._lists if query[:2] == (kind, namespace) and (held is None or query[2] <= held)
        ]:
            del self._lists[query]

    def _sweep(self) -> None:
        """Now and then what is too old goes, so that objects that are gone leave nothing behind."""
        if self._fresh(self._swept):
            return
        self._swept = self._clock()
        self._objects = {place: known for place, known in self._objects.items() if self._fresh(known[0])}
        self._lists = {query: known for query, known in self._lists.items() if self._fresh(known[0])}
