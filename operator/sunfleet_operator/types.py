"""Words that every module of the operator uses: JSON objects, keys of the work queue, references to live objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from sunfleet_api import names

# A Kubernetes object as the API server sends it. It is read, never changed in place.
Json: TypeAlias = Mapping[str, Any]
# A manifest under construction.
Manifest: TypeAlias = dict[str, Any]


class Listed(list[Json]):
    """Objects of a list as it was at ``version`` of the cluster; empty where that is not known."""

    def __init__(self, found: Iterable[Json] = (), version: str = "") -> None:
        super().__init__(found)
        self.version = version


DECODER = "SharedDecoder"
MODEL = "SunModel"
POOL = "PrefillPool"
PROFILE = "ServingProfile"
TUNING = "PrefillTuning"
NAMESPACE = "Namespace"


@dataclass(frozen=True, order=True)
class Key:
    """One object to reconcile; what it is now is read again each time. ``namespace`` is empty for a Namespace."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Ref:
    """A live object that may be deleted: only if it still has this ``uid``."""

    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, kind: str, live: Json) -> Ref:
        meta = live["metadata"]
        return cls(kind, meta["namespace"], meta["name"], meta["uid"])


def metadata(live: Json) -> Json:
    """``metadata`` of an object."""
    found: Json = live["metadata"]
    return found


def name_of(live: Json) -> str:
    return str(metadata(live)["name"])


def namespace_of(live: Json) -> str:
    return str(metadata(live)["namespace"])


def full_name(live: Json) -> str:
    """``namespace/name``."""
    return f"{namespace_of(live)}/{name_of(live)}"


def labels_of(live: Json) -> Mapping[str, str]:
    return metadata(live).get("labels") or {}


def spec_of(live: Json) -> Json:
    return live.get("spec") or {}


def status_of(live: Json) -> Json:
    return live.get("status") or {}


def is_terminating(live: Json) -> bool:
    return bool(metadata(live).get("deletionTimestamp"))


def ready_since(pod: Json) -> str | None:
    """When a pod became Ready (RFC 3339), ``None`` while it is not."""
    conditions = status_of(pod).get("conditions") or ()
    ready: Json = next((c for c in conditions if c.get("type") == "Ready"), {})
    return str(ready.get("lastTransitionTime") or "") if ready.get("status") == "True" else None


def runs_engine(pod: Json) -> bool:
    """An engine pod that may hold a GPU. One that was evicted lies around for long, but holds none."""
    return is_engine(pod) and status_of(pod).get("phase") not in {"Succeeded", "Failed"}


def is_engine(pod: Json) -> bool:
    return labels_of(pod).get(names.LABEL_ROLE) in {names.ROLE_DECODE, names.ROLE_PREFILL}


_OWNERS = (
    (names.LABEL_TUNING, TUNING),
    (names.LABEL_MODEL, MODEL),
    (names.LABEL_DECODER, DECODER),
    (names.LABEL_POOL, POOL),
)


def owner_of(live: Json) -> Key | None:
    """The object of ours that a child belongs to by its labels."""
    found = labels_of(live)
    for label, kind in _OWNERS:
        if label in found:
            return Key(kind, namespace_of(live), found[label])
    return None


def controller_of(live: Json) -> Json:
    """The owner reference of the controller, empty when there is none."""
    references = metadata(live).get("ownerReferences") or ()
    return next((reference for reference in references if reference.get("controller")), {})


def revision_of(live: Json) -> str:
    """The revision label of a child, empty when it has none."""
    return labels_of(live).get(names.LABEL_REVISION, "")


def key_of(kind: str, live: Json) -> Key:
    return Key(kind, namespace_of(live), name_of(live))
