"""What is known of objects without asking again: read, written, or told by a watch a moment ago. Pure bookkeeping, no
requests.

A list is known by the label of its owner, so that news of one object concerns the lists of one owner. Versions of
objects are compared as numbers, which Kubernetes has promised since 1.35 and has always kept.

Objects are kept as JSON text: as Python's dictionaries they take five times the room, and there are ten for each of
our own.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sunfleet_api import names
from sunfleet_operator.plan import jobs
from sunfleet_operator.types import (
    DECODER,
    MODEL,
    POOL,
    PROFILE,
    TUNING,
    Json,
    Listed,
    labels_of,
    metadata,
    name_of,
    owner_of,
    status_of,
)

# Only the operator writes these, and nobody watches them; a record's content cannot even be changed.
_OURS: Final = frozenset({"Service", "PodDisruptionBudget", "ControllerRevision"})
# A watch tells of every change of these. The first are asked for by name, the others by their owner.
_BY_NAME: Final = frozenset({MODEL, DECODER, POOL, PROFILE, TUNING, "NetworkPolicy"})
_BY_OWNER: Final = frozenset({"Deployment", "Job", "Pod"})
WATCHED: Final = _BY_NAME | _BY_OWNER
OBJECTS: Final = _OURS | _BY_NAME
LISTS: Final = frozenset({"ControllerRevision"}) | _BY_OWNER
_OWNER_LABELS: Final = (names.LABEL_MODEL, names.LABEL_DECODER, names.LABEL_POOL, names.LABEL_TUNING)
_JOB_NAME: Final = "batch.kubernetes.io/job-name"
_HEAD: Final = ("namespace", "name", "labels")

_Place = tuple[str, str]  # namespace, name
_Owner = tuple[str, str, str]  # namespace, label, value
_Query = frozenset[tuple[str, str]]


class _Kept:
    """One object. ``head`` has what is looked at without unpacking it: a part of its metadata, and a pod's phase."""

    __slots__ = ("_text", "head", "version")

    def __init__(self, live: Json) -> None:
        meta = metadata(live)
        self.head: Json = {"metadata": {part: meta[part] for part in _HEAD if part in meta}}
        if phase := status_of(live).get("phase"):
            self.head["status"] = {"phase": phase}
        self.version = _version(live)
        self._text = json.dumps(live, separators=(",", ":"))

    def unpacked(self) -> Json:
        found: Json = json.loads(self._text)
        return found


@dataclass
class _List:
    since: float
    items: dict[str, _Kept]  # by name
    version: str = ""  # of the cluster when it was read


class Memory:
    """Objects and lists, each for ``seconds`` at most after it was read. Not thread-safe.

    What was told or written while a read was on its way is newer than its answer: whoever reads takes :meth:`begin`
    before, and hands it back with the answer.
    """

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds, self._clock = seconds, clock
        self._objects: defaultdict[str, dict[_Place, tuple[float, _Kept]]] = defaultdict(dict)
        self._lists: defaultdict[str, dict[_Owner, dict[_Query, _List]]] = defaultdict(dict)
        self._now = 0  # counts what was told, written and forgotten
        self._floor = 0  # reads that began before are not kept
        self._touched: dict[tuple[str, ...], int] = {}
        self._swept, self._swept_at = clock(), 0

    def __len__(self) -> int:
        lists = (len(queries) for owners in self._lists.values() for queries in owners.values())
        return sum(map(len, self._objects.values())) + sum(lists)

    def begin(self) -> tuple[float, int]:
        """Before a read."""
        self._sweep()
        return self._clock(), self._now

    # What is asked for -----------------------------------------------------------------------------------------------

    def object(self, kind: str, namespace: str, name: str) -> Json | None:
        known = self._objects[kind].get((namespace, name))
        return known[1].unpacked() if known is not None and self._fresh(known[0]) else None

    def list(self, kind: str, namespace: str, labels: Mapping[str, str]) -> Sequence[Json] | None:
        owner = _owner(namespace, labels)
        known = self._lists[kind].get(owner, {}).get(frozenset(labels.items())) if owner else None
        if known is None or not self._fresh(known.since):
            return None
        return tuple(kept.unpacked() for kept in known.items.values())

    # What was read, written, told ------------------------------------------------------------------------------------

    def read_object(self, kind: str, began: tuple[float, int], found: Json) -> None:
        place = _place(found)
        if self._untouched((kind, *place), began):
            self._objects[kind][place] = (began[0], _Kept(found))

    def read_list(
        self, kind: str, namespace: str, labels: Mapping[str, str], began: tuple[float, int], found: Iterable[Json]
    ) -> None:
        owner = _owner(namespace, labels)
        if owner is None or not self._untouched((kind, *owner), began):
            return
        items = {name_of(live): _Kept(live) for live in found}
        self._lists[kind].setdefault(owner, {})[frozenset(labels.items())] = _List(
            began[0], items, found.version if isinstance(found, Listed) else ""
        )
        if kind == "Job":
            self._drop("Pod", owner)

    def wrote(self, kind: str, live: Json) -> None:
        """The object as a write of ours left it."""
        self._touch(kind, live)
        kept = _Kept(live)
        if kind in OBJECTS:
            self._keep(kind, live, kept)
        for lists in self._lists_of(kind, live):
            for query, known in lists.items():
                if query <= labels_of(live).items() and _newer(live, known.items.get(name_of(live))):
                    known.items[name_of(live)] = kept

    def told(self, kind: str, live: Json, *, gone: bool) -> bool:
        """A watch event; whether it is news."""
        self._touch(kind, live)
        news = self._keep(kind, live, gone=gone) if kind in _BY_NAME else True
        for lists in self._lists_of(kind, live):
            for query in list(lists):
                self._enter(lists, query, live, gone=gone)
        if kind == "Job":
            self._outdate_pods(live)
        return news

    def forget(self, kind: str, namespace: str, name: str, labels: Mapping[str, str] | None = None) -> None:
        """An object and the lists that hold it, or would with these ``labels``."""
        self._now += 1
        self._touched[kind, namespace, name] = self._now
        self._objects[kind].pop((namespace, name), None)
        for owner in [owner for owner in self._lists[kind] if owner[0] == namespace]:
            holds = any(name in known.items for known in self._lists[kind][owner].values())
            if holds or (labels or {}).get(owner[1]) == owner[2]:
                self._drop(kind, owner)

    def removed(self, kind: str, namespace: str, name: str) -> None:
        """An object that was deleted: it does not count any more, even if it takes its time."""
        self._now += 1
        self._touched[kind, namespace, name] = self._now
        self._objects[kind].pop((namespace, name), None)
        for owner, lists in self._lists[kind].items():
            for known in lists.values() if owner[0] == namespace else ():
                if known.items.pop(name, None) is not None:
                    self._touched[(kind, *owner)] = self._now

    def clear(self, kind: str = "", namespace: str = "") -> None:
        """Everything (of a kind, in a namespace): what watches told is not to be relied on."""
        self._now += 1
        self._floor = self._now
        if not kind:
            self._objects.clear()
            self._lists.clear()
        elif not namespace:
            self._objects.pop(kind, None)
            self._lists.pop(kind, None)
        else:
            objects, lists = self._objects[kind], self._lists[kind]
            self._objects[kind] = {place: known for place, known in objects.items() if place[0] != namespace}
            self._lists[kind] = {owner: known for owner, known in lists.items() if owner[0] != namespace}

    # ---------------------------------------------------------------------------------------------------------------

    def _fresh(self, since: float) -> bool:
        return self._clock() - since < self._seconds

    def _untouched(self, what: tuple[str, ...], began: tuple[float, int]) -> bool:
        return began[1] >= max(self._floor, self._touched.get(what, 0))

    def _touch(self, kind: str, live: Json) -> None:
        self._now += 1
        self._touched[(kind, *_place(live))] = self._now
        for owner in _owners(live):
            self._touched[(kind, *owner)] = self._now

    def _keep(self, kind: str, live: Json, kept: _Kept | None = None, *, gone: bool = False) -> bool:
        place = _place(live)
        known = self._objects[kind].get(place)
        if known is not None and not _newer(live, known[1]):
            return False
        if gone:
            self._objects[kind].pop(place, None)
        else:
            self._objects[kind][place] = (self._clock(), kept or _Kept(live))
        return True

    def _lists_of(self, kind: str, live: Json) -> Iterator[dict[_Query, _List]]:
        return (self._lists[kind][owner] for owner in _owners(live) if owner in self._lists[kind])

    @staticmethod
    def _enter(lists: dict[_Query, _List], query: _Query, live: Json, *, gone: bool) -> None:
        """Into one list. What it does not hold is new, or older than the list and gone by then; where that cannot be
        told it is read anew."""
        known, name = lists[query], name_of(live)
        belongs = not gone and query <= labels_of(live).items()
        if name not in known.items:
            if belongs and not known.version.isdecimal():
                del lists[query]
            elif belongs and _version(live) > int(known.version):
                known.items[name] = _Kept(live)
        elif _newer(live, known.items[name]):
            if belongs:
                known.items[name] = _Kept(live)
            else:
                del known.items[name]

    def _outdate_pods(self, job: Json) -> None:
        """Pods explain what became of their Job, so they are never older than it."""
        for owner in _owners(job):
            for known in self._lists["Pod"].get(owner, {}).values():
                own = [pod.head for pod in known.items.values() if _is_of(pod.head, job)]
                if not jobs.explained(job, own):
                    self._drop("Pod", owner)
                    break

    def _drop(self, kind: str, owner: _Owner) -> None:
        self._lists[kind].pop(owner, None)
        self._now += 1
        self._touched[(kind, *owner)] = self._now

    def _sweep(self) -> None:
        """Now and then what is too old goes, so that objects that are gone leave nothing behind."""
        if self._fresh(self._swept):
            return
        self._swept = self._clock()
        for kind, objects in self._objects.items():
            self._objects[kind] = {place: known for place, known in objects.items() if self._fresh(known[0])}
        for owners in self._lists.values():
            for owner in [owner for owner, lists in owners.items() if not self._any_fresh(lists.values())]:
                del owners[owner]
        # No read takes as long as it is from one sweep to the next.
        self._touched = {what: at for what, at in self._touched.items() if at > self._swept_at}
        self._swept_at = self._now

    def _any_fresh(self, lists: Iterable[_List]) -> bool:
        return any(self._fresh(known.since) for known in lists)


def _newer(live: Json, known: _Kept | None) -> bool:
    """Whether it is a later version; also where that cannot be told."""
    version = _version(live)
    return known is None or not version or version > known.version


def _version(live: Json) -> int:
    text = str(metadata(live).get("resourceVersion"))
    return int(text) if text.isdecimal() else 0


def _place(live: Json) -> _Place:
    return str(metadata(live).get("namespace") or ""), name_of(live)


def _owner(namespace: str, labels: Mapping[str, str]) -> _Owner | None:
    """By which a query is known; ``None`` when it is for more than one owner."""
    return next(((namespace, label, labels[label]) for label in _OWNER_LABELS if label in labels), None)


def _owners(live: Json) -> list[_Owner]:
    found, namespace = labels_of(live), _place(live)[0]
    return [(namespace, label, found[label]) for label in _OWNER_LABELS if label in found]


def _is_of(pod: Json, job: Json) -> bool:
    return labels_of(pod).get(_JOB_NAME) == name_of(job) and owner_of(pod) == owner_of(job)
