"""What this process read, wrote or was told a moment ago is not asked for again.

While hundreds of objects come up, each is looked at several times within a minute, and each look asked for the same
dozen objects. Children that only the operator writes are remembered for ``seconds``; objects that are watched as well,
and a watch event corrects them before it makes anybody look: a look knows at least what led to it. What nobody watches
and others write (ConfigMaps, Namespaces, Events, logs) is always read live.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from sunfleet_operator.apply import Writer
from sunfleet_operator.cluster import UnavailableError
from sunfleet_operator.memory import LISTS, OBJECTS, WATCHED, Memory
from sunfleet_operator.observe import Reader
from sunfleet_operator.types import Json, Manifest, Ref


class Store(Reader, Writer, Protocol):
    """Both halves of :class:`~sunfleet_operator.cluster.Cluster`."""


class Recalling:
    """A :class:`Store` over another one. Not thread-safe."""

    def __init__(self, store: Store, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._memory = store, Memory(seconds, clock)

    async def get(self, kind: str, namespace: str, name: str) -> Json | None:
        if kind not in OBJECTS:
            return await self._store.get(kind, namespace, name)
        known = self._memory.object(kind, namespace, name)
        if known is not None:
            return known
        began = self._memory.begin()
        with self._asking():
            found = await self._store.get(kind, namespace, name)
        # Something that is missing is about to be made: nothing is remembered of it.
        if found is not None:
            self._memory.read_object(kind, began, found)
        return found

    async def list(
        self,
        kind: str,
        namespace: str = "",
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> Sequence[Json]:
        if kind not in LISTS or not labels or fields:
            return await self._store.list(kind, namespace, labels=labels, fields=fields)
        known = self._memory.list(kind, namespace, labels)
        if known is not None:
            return known
        began = self._memory.begin()
        with self._asking():
            found = await self._store.list(kind, namespace, labels=labels)
        self._memory.read_list(kind, namespace, labels, began, found)
        return found

    async def list_served(self, kind: str, *, labels: Mapping[str, str] | None = None) -> Sequence[Json]:
        return await self._store.list_served(kind, labels=labels)

    async def log(self, namespace: str, pod: str, *, lines: int, container: str = "") -> str:
        return await self._store.log(namespace, pod, lines=lines, container=container)

    def serves(self, namespace: str) -> bool:
        return self._store.serves(namespace)

    async def apply(self, manifest: Manifest, manager: str, *, subresource: str = "") -> Json:
        kind = manifest["kind"]
        with self._writing(kind, manifest):
            live = await self._store.apply(manifest, manager, subresource=subresource)
        self._memory.wrote(kind, live)
        return live

    async def create(self, manifest: Manifest) -> Json:
        return await self._store.create(manifest)

    async def delete(self, ref: Ref, *, grace_seconds: int | None = None) -> None:
        with self._writing(ref.kind, {"metadata": {"namespace": ref.namespace, "name": ref.name}}):
            await self._store.delete(ref, grace_seconds=grace_seconds)
        if ref.kind == "Pod":  # it counts for as long as it drains
            self._memory.forget(ref.kind, ref.namespace, ref.name)
        else:
            self._memory.removed(ref.kind, ref.namespace, ref.name)

    async def set_finalizers(self, kind: str, live: Json, finalizers: Sequence[str], manager: str) -> Json:
        with self._writing(kind, live):
            after = await self._store.set_finalizers(kind, live, finalizers, manager)
        self._memory.wrote(kind, after)
        return after

    def told(self, kind: str, live: Json, *, gone: bool) -> bool:
        """A watch event; whether it is news."""
        return self._memory.told(kind, live, gone=gone) if kind in WATCHED else True

    def relisted(self, kind: str, namespace: str) -> None:
        """A watch (of a namespace; empty: of all) begins anew, before it tells anything. What was deleted in the gap
        is never told: all that the watch had told goes."""
        self._memory.clear(kind, namespace)

    def forget(self) -> None:
        """Everything is to be read again."""
        self._memory.clear()

    @property
    def remembered(self) -> int:
        """Objects and lists that are known now."""
        return len(self._memory)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Where requests get no answer, watches may tell nothing either."""
        try:
            yield
        except UnavailableError:
            self._memory.clear()
            raise

    @contextmanager
    def _writing(self, kind: str, target: Json) -> Iterator[None]:
        """A write that fails may have been carried out all the same."""
        try:
            with self._asking():
                yield
        except BaseException:
            meta = target["metadata"]
            self._memory.forget(kind, meta.get("namespace", ""), meta["name"], meta.get("labels"))
            raise
