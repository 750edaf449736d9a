"""An API server in memory, as far as the operator can tell: UIDs, finalizers, server-side apply, owners of replicas."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from sunfleet_api import names
from sunfleet_operator.cluster import ConflictError, NotFoundError, RefusedError
from sunfleet_operator.types import Json, Ref

Document = dict[str, Any]
Place = tuple[str, str, str]


class Store:
    """Objects by (kind, namespace, name). ``before_write`` may raise, as a killed process would stop."""

    def __init__(self) -> None:
        self.objects: dict[Place, Document] = {}
        self.writes: list[str] = []
        self.terminating: set[str] = set()  # namespaces
        self.logs: dict[str, str] = {}  # by pod
        self.served: Callable[[str], bool] = lambda _: True
        self.before_write: Callable[[str], None] = lambda _: None
        self._numbers = count(1)

    # What people and controllers do ------------------------------------------------------------------------------

    def put(self, manifest: Mapping[str, Any]) -> Document:
        """``kubectl apply``: the spec is replaced, the generation counts."""
        place = self._place(manifest)
        known = self.objects.get(place)
        if known is None:
            made = self._new(manifest)
        else:
            made = {**known, "spec": copy.deepcopy(manifest["spec"])}
            made["metadata"] = {**known["metadata"], "generation": known["metadata"]["generation"] + 1}
        self.objects[place] = made
        return made

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """``kubectl delete``: waits for finalizers, then takes dependents along."""
        live = self.objects.get((kind, namespace, name))
        if live is None:
            return
        if live["metadata"].get("finalizers"):
            live["metadata"].setdefault("deletionTimestamp", "2026-01-01T00:00:00Z")
            return
        del self.objects[kind, namespace, name]
        for place, other in list(self.objects.items()):
            references = other["metadata"].get("ownerReferences") or ()
            if any(reference["uid"] == live["metadata"]["uid"] for reference in references):
                self.remove(*place)

    def all(self, kind: str) -> Iterator[Document]:
        """Objects of a kind, to look at or to change in place."""
        return (live for (found, _, _), live in list(self.objects.items()) if found == kind)

    def one(self, kind: str, name: str, namespace: str = "team") -> Document:
        return self.objects[kind, namespace, name]

    # What the operator does --------------------------------------------------------------------------------------

    async def get(self, kind: str, namespace: str, name: str) -> Json | None:
        if kind == "Namespace":
            gone = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if name in self.terminating else {}
            return {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}, **gone}}
        return copy.deepcopy(self.objects.get((kind, namespace, name)))

    async def list(
        self,
        kind: str,
        namespace: str = "",
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> Sequence[Json]:
        return [
            {key: value for key, value in copy.deepcopy(live).items() if key not in {"apiVersion", "kind"}}
            for (found, space, _), live in self.objects.items()
            if found == kind
            and namespace in {"", space}
            and (labels or {}).items() <= (live["metadata"].get("labels") or {}).items()
            and all(_field(live, path) == value for path, value in (fields or {}).items())
        ]

    async def log(self, namespace: str, pod: str, *, lines: int, container: str = "") -> str:
        return "\n".join(self.logs.get(pod, "").splitlines()[-lines:])

    def serves(self, namespace: str) -> bool:
        return self.served(namespace)

    async def list_served(self, kind: str, *, labels: Mapping[str, str] | None = None) -> Sequence[Json]:
        return await self.list(kind, labels=labels)

    async def create(self, manifest: Document) -> Json:
        place = self._place(manifest)
        self._write(f"create {place}", counted=manifest["kind"] != "Event")
        if place in self.objects:
            raise ConflictError(f"create {place}", 409, "exists")
        self.objects[place] = self._new(manifest)
        return self.objects[place]

    async def replace(self, manifest: Document) -> Json:
        place = self._place(manifest)
        live = self.objects.get(place)
        if live is None:
            raise NotFoundError(f"replace {place}", 404, "not found")
        if manifest["metadata"].get("resourceVersion") not in {None, live["metadata"]["resourceVersion"]}:
            raise ConflictError(f"replace {place}", 409, "changed")
        live.update(copy.deepcopy(manifest), metadata={**live["metadata"], "resourceVersion": str(next(self._numbers))})
        return live

    async def apply(self, manifest: Document, manager: str, *, subresource: str = "") -> Json:
        place = self._place(manifest)
        self._write(f"apply {place} {manager}")
        live, uid = self.objects.get(place), manifest["metadata"].get("uid")
        if uid and (live is None or live["metadata"]["uid"] != uid):
            raise ConflictError(f"apply {place}", 409, "uid")
        if live is None:
            live = self.objects[place] = self._new(manifest)
        _one_controller(live, manifest)
        before = copy.deepcopy(live.get("spec"))
        if subresource == "status":
            _no_emptied_map(live.get("status") or {}, manifest["status"], "status")
            live["status"] = _keep_replaced(live.get("status") or {}, manifest["status"])
        else:
            _merge(live, manifest)
            self._own_replicas(live, manifest, manager)
        live["metadata"]["resourceVersion"] = str(next(self._numbers))
        if before != live.get("spec"):
            live["metadata"]["generation"] += 1
        return live

    async def set_finalizers(self, kind: str, live: Json, finalizers: Sequence[str], manager: str) -> Json:
        meta = live["metadata"]
        self._write(f"finalizers {kind} {meta['name']}")
        known = self.objects.get((kind, meta["namespace"], meta["name"]))
        if known is None:
            raise NotFoundError("finalizers", 404, "not found")
        known["metadata"]["finalizers"] = list(finalizers)
        if known["metadata"].get("deletionTimestamp") and not finalizers:
            self.remove(kind, meta["namespace"], meta["name"])
        return known

    async def delete(self, ref: Ref, *, grace_seconds: int | None = None) -> None:
        self._write(f"delete {ref.kind} {ref.name}" + ("" if grace_seconds is None else f" in {grace_seconds} s"))
        live = self.objects.get((ref.kind, ref.namespace, ref.name))
        if live is not None and live["metadata"]["uid"] == ref.uid:
            self.remove(ref.kind, ref.namespace, ref.name)

    # ---------------------------------------------------------------------------------------------------------------

    def _write(self, what: str, *, counted: bool = True) -> None:
        if counted:
            self.before_write(what)
            self.writes.append(what)

    def _new(self, manifest: Mapping[str, Any]) -> Document:
        number = next(self._numbers)
        made = copy.deepcopy(dict(manifest))
        made["metadata"] = {
            **made["metadata"],
            "uid": f"uid-{number}",
            "resourceVersion": str(number),
            "generation": 1,
            "creationTimestamp": f"2026-01-01T00:{number // 60 % 60:02}:{number % 60:02}Z",
        }
        if made["kind"] == "Deployment":
            made["spec"].setdefault("replicas", 1)
        return made

    @staticmethod
    def _place(manifest: Mapping[str, Any]) -> Place:
        meta = manifest["metadata"]
        return str(manifest["kind"]), str(meta["namespace"]), str(meta["name"])

    @staticmethod
    def _own_replicas(live: Document, manifest: Mapping[str, Any], manager: str) -> None:
        """A field that nobody owns any more falls back to its default: the trap that ``Scale`` avoids."""
        if manifest["kind"] != "Deployment":
            return
        owners = {m["manager"]: m for m in live["metadata"].get("managedFields") or ()}
        if "replicas" in manifest["spec"]:
            fields: Document = {"f:spec": {"f:replicas": {}}}
            owners[manager] = {"manager": manager, "operation": "Apply", "fieldsV1": fields}
        elif manager in owners:
            del owners[manager]
            if not owners:
                live["spec"]["replicas"] = 1
        live["metadata"]["managedFields"] = list(owners.values())


def _field(live: Document, path: str) -> Any:
    found: Any = live
    for part in path.split("."):
        found = found.get(part, {})
    return found


def _one_controller(live: Document, manifest: Mapping[str, Any]) -> None:
    """Owner references merge by UID, and at most one of them may be the controller's."""
    known = live["metadata"].get("ownerReferences") or ()
    given = manifest["metadata"].get("ownerReferences") or ()
    if len({reference["uid"] for reference in (*known, *given) if reference.get("controller")}) > 1:
        raise RefusedError(f"apply {manifest['kind']}", 422, "Only one reference can have Controller set to true")


def _merge(live: Document, manifest: Mapping[str, Any]) -> None:
    for key, value in manifest.items():
        if isinstance(value, Mapping) and isinstance(live.get(key), dict):
            _merge(live[key], value)
        else:
            live[key] = copy.deepcopy(value)


def _no_emptied_map(live: Mapping[str, Any], status: Mapping[str, Any], path: str) -> None:
    """Server-side apply of an empty map over one whose keys are ours makes it null, and the schema refuses that."""
    for name, value in status.items():
        before = live.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if before and not value:
                raise RefusedError(f"apply {path}.{name}", 422, 'must be of type object: "null"')
            _no_emptied_map(before, value, f"{path}.{name}")


def _keep_replaced(live: Document, status: Mapping[str, Any]) -> Document:
    """What we applied before and leave out now goes."""
    return {**copy.deepcopy(dict(status)), "conditions": copy.deepcopy(status.get("conditions") or [])}


MANAGERS = (names.FIELD_MANAGER, names.SCALE_FIELD_MANAGER, names.STATUS_FIELD_MANAGER)
