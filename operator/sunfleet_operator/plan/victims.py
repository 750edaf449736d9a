"""Which pods go when there shall be fewer: those that serve nobody yet, then those with the least work. Pure.

The ReplicaSet controller deletes the pods with the lowest ``pod-deletion-cost`` first. A deleted pod gets no new
request from the moment of its deletion on, and ends once its streams have ended (preStop, drain).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sunfleet_operator.types import Json, Manifest, metadata, name_of, ready_since

ANNOTATION: Final = "controller.kubernetes.io/pod-deletion-cost"
_GOES: Final = "-1"
_STAYS: Final = "0"  # as without the annotation


def marks(pods: Sequence[Json], surplus: int, work: Mapping[str, float]) -> list[Manifest]:
    """The annotations to write so that exactly ``surplus`` of these pods go; ``work`` in requests by pod name."""
    going = {name_of(pod) for pod in sorted(pods, key=lambda pod: _order(pod, work))[: max(0, surplus)]}
    costs = ((pod, _GOES if name_of(pod) in going else _STAYS) for pod in pods)
    return [_mark(pod, cost) for pod, cost in costs if _cost(pod) != cost]


def _order(pod: Json, work: Mapping[str, float]) -> tuple[bool, float, str, str]:
    """Not Ready first, then little work, then young; a pod whose work is unknown passes for one without."""
    born = str(metadata(pod).get("creationTimestamp") or "")
    return ready_since(pod) is not None, work.get(name_of(pod), 0.0), _newest_first(born), name_of(pod)


def _newest_first(stamp: str) -> str:
    """Sorts RFC 3339 times backwards."""
    return "".join(chr(0x10FFFF - ord(character)) for character in stamp)


def _cost(pod: Json) -> str:
    return str((metadata(pod).get("annotations") or {}).get(ANNOTATION, _STAYS))


def _mark(pod: Json, cost: str) -> Manifest:
    meta = metadata(pod)
    where = {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**where, "annotations": {ANNOTATION: cost}}}
