"""From the adapters that tasks want to what each pod of a PrefillPool is told, and what routers are. Pure.

An adapter is announced once the pod says that it has loaded it, and taken back from routers before the pod is told to
let go of it. Each revision of the pods holds everything: during a roll-out the new ones are filled before the old go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sunfleet_api import names
from sunfleet_api.conditions import ConditionType, Reason
from sunfleet_api.pooling import Held, Wanted, WantedAdapter, announced, announcement, engine_start
from sunfleet_api.prefill_pool import Lora
from sunfleet_operator.build.adapters import mounted_at
from sunfleet_operator.build.volumes import GivenVolumes
from sunfleet_operator.observed import Adapter, Fault, ObservedPool, PoolUser
from sunfleet_operator.plan.actions import Announce, Load
from sunfleet_operator.plan.conditions import Verdict
from sunfleet_operator.plan.placement import Placed, Seat, place
from sunfleet_operator.types import (
    Json,
    Key,
    is_terminating,
    metadata,
    name_of,
    ready_since,
    revision_of,
    runs_engine,
    status_of,
)

# When to look again: while pods load, while one does not answer or an adapter fails, and else (pods may forget).
_LOADING_SECONDS: Final = 1.0
_TROUBLE_SECONDS: Final = 5.0
_CALM_SECONDS: Final = 60.0
_NAMED: Final = 3  # adapters that a message names


@dataclass(frozen=True)
class Seating:
    """``full``: by revision, how many pods have everything that they were given. ``faults``: by task and adapter."""

    announces: tuple[Announce, ...] = ()
    loads: tuple[Load, ...] = ()
    full: Mapping[str, int] = field(default_factory=dict)
    faults: Mapping[Key, Mapping[str, Fault]] = field(default_factory=dict)
    wanted: int = 0
    loaded: int = 0
    verdict: Verdict = field(default_factory=lambda: _all_loaded(0))
    look_again: float | None = None


def seat(observed: ObservedPool, lora: Lora, given: GivenVolumes) -> Seating:
    """``given``: volumes of the pool's own template, for adapters of file:// URIs."""
    wanted = _wanted(observed, lora, given)
    loads = {name: _load(observed, users) for name, (_, users) in wanted.items()}
    pods = [pod for pod in observed.children.pods if _has_seat(observed, pod)]
    by_pod: dict[str, frozenset[str]] = {}
    left_out: set[str] = set()
    for revision in sorted({revision_of(pod) for pod in pods}):
        seats = [Seat(name_of(pod), _names(observed, pod)) for pod in pods if revision_of(pod) == revision]
        placed: Placed = place(loads, seats, capacity=lora.max_loaded_per_pod, copies=lora.copies)
        by_pod |= placed.by_pod
        left_out |= set(placed.left_out)
    told = [_Pod(observed, pod, by_pod[name_of(pod)]) for pod in pods]
    adapters = {name: adapter for name, (adapter, _) in wanted.items()}
    loaded = {name for pod in told if ready_since(pod.live) is not None for name in pod.serves}
    faults = _faults(observed, wanted, told, left_out, loaded)
    return Seating(
        announces=tuple(said for pod in told if (said := pod.announce()) is not None),
        loads=tuple(asked for pod in told if (asked := pod.load(adapters)) is not None),
        full=_full(told),
        faults=faults,
        wanted=len(wanted),
        loaded=len(loaded & wanted.keys()),
        verdict=_verdict(wanted, loaded, faults),
        look_again=_look_again(told),
    )


def _wanted(
    observed: ObservedPool, lora: Lora, given: GivenVolumes
) -> dict[str, tuple[WantedAdapter, tuple[PoolUser, ...]]]:
    """By name, oldest task first; one whose files no pod can reach is its task's business."""
    found: dict[str, tuple[WantedAdapter, tuple[PoolUser, ...]]] = {}
    for user in observed.users:
        for adapter in user.adapters.get(observed.key, ()):
            path = mounted_at(adapter.uri, lora.claims, given)
            if path is not None:
                before = found[adapter.name][1] if adapter.name in found else ()
                found[adapter.name] = (_asked(adapter, path), (*before, user))
    return found


def _asked(adapter: Adapter, path: str) -> WantedAdapter:
    return WantedAdapter(name=adapter.name, uri=adapter.uri, digest=adapter.digest, path=path)


def _load(observed: ObservedPool, users: Iterable[PoolUser]) -> float | None:
    known = [observed.told.loads.get(user.key) for user in users] if observed.told else []
    measured = [load for load in known if load is not None]
    return sum(measured) if measured else None


def _has_seat(observed: ObservedPool, pod: Json) -> bool:
    """Its engine has answered, now or before: one that is still starting gets nothing yet."""
    if not runs_engine(pod) or is_terminating(pod) or not engine_start(status_of(pod)):
        return False
    return observed.held.get(name_of(pod)) is not None or bool(announced(metadata(pod), status_of(pod)))


def _names(observed: ObservedPool, pod: Json) -> frozenset[str]:
    held = observed.held.get(name_of(pod))
    if held is None:
        return announced(metadata(pod), status_of(pod))
    return frozenset(one.name for one in held.adapters)


class _Pod:
    """One pod: what it has, what it shall have, and what was announced of it."""

    def __init__(self, observed: ObservedPool, live: Json, placed: frozenset[str]) -> None:
        self.live, self.placed = live, placed
        self.held: Held | None = observed.held.get(name_of(live))
        self._announced = announced(metadata(live), status_of(live))
        self.states = {one.name: one for one in self.held.adapters} if self.held is not None else {}

    @property
    def serves(self) -> frozenset[str]:
        """What routers may send it; of one that does not answer just now what was announced."""
        return (self._announced if self.held is None else self.held.loaded()) & self.placed

    @property
    def failed(self) -> frozenset[str]:
        return frozenset(name for name, one in self.states.items() if one.state == "Failed")

    def announce(self) -> Announce | None:
        start = engine_start(status_of(self.live))
        value, meta = announcement(start, self.serves), metadata(self.live)
        before = (meta.get("annotations") or {}).get(names.ANNOTATION_ADAPTERS)
        if before == value or (before is None and not self.serves):
            return None
        where = {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]}
        annotations = {names.ANNOTATION_ADAPTERS: value}
        return Announce({"apiVersion": "v1", "kind": "Pod", "metadata": {**where, "annotations": annotations}})

    def load(self, adapters: Mapping[str, WantedAdapter]) -> Load | None:
        """Everything that it shall hold, and for this once what routers do not know yet that it gives up."""
        if self.held is None:
            return None
        asked = tuple(adapters[name] for name in sorted(self.placed))
        kept = tuple(
            WantedAdapter(name=name, uri="", digest=self.states[name].digest)
            for name in sorted(self._announced - self.placed)
            if name in self.states
        )
        wanted = Wanted(adapters=(*asked, *kept))
        if {one.name: one.digest for one in wanted.adapters} == {n: s.digest for n, s in self.states.items()}:
            return None
        return Load(name_of(self.live), str(status_of(self.live).get("podIP") or ""), wanted)

    @property
    def pending(self) -> bool:
        return self.held is not None and bool(self.placed - self.serves - self.failed) | bool(
            self.states.keys() - self.placed
        )


def _full(told: Iterable[_Pod]) -> dict[str, int]:
    full: dict[str, int] = {}
    for pod in told:
        if ready_since(pod.live) is not None and pod.placed <= pod.serves | pod.failed:
            full[revision_of(pod.live)] = full.get(revision_of(pod.live), 0) + 1
    return full


def _faults(
    observed: ObservedPool,
    wanted: Mapping[str, tuple[WantedAdapter, tuple[PoolUser, ...]]],
    told: Iterable[_Pod],
    left_out: set[str],
    loaded: set[str],
) -> dict[Key, dict[str, Fault]]:
    faults: dict[Key, dict[str, Fault]] = {}

    def blame(name: str, fault: Fault) -> None:
        for user in wanted[name][1]:
            faults.setdefault(user.key, {})[name] = fault

    full = (
        f"PrefillPool {observed.key.namespace}/{observed.key.name} has no room for another adapter: "
        "raise its replicas, autoscaling.maxReplicas or lora.maxLoadedPerPod"
    )
    for name in left_out - loaded:
        blame(name, Fault(Reason.POOL_FULL, full))
    for pod in told:
        for name in pod.failed & wanted.keys() - loaded:
            state = pod.states[name]
            blame(name, Fault(state.reason or Reason.ADAPTER_FAILED, f"pod {name_of(pod.live)}: {state.message}"))
    return faults


def _all_loaded(count: int) -> Verdict:
    return Verdict(ConditionType.ADAPTERS_LOADED, "True", Reason.ADAPTERS_LOADED, f"{count} of {count} are loaded")


def _verdict(wanted: Mapping[str, object], loaded: set[str], faults: Mapping[Key, Mapping[str, Fault]]) -> Verdict:
    missing = sorted(wanted.keys() - loaded)
    if not missing:
        return _all_loaded(len(wanted))
    text = f"{len(wanted) - len(missing)} of {len(wanted)} are loaded"
    if not faults:
        return Verdict(ConditionType.ADAPTERS_LOADED, "False", Reason.ADAPTER_LOADING, text)
    each = [(key, fault) for key, found in sorted(faults.items()) for _, fault in sorted(found.items())]
    shown = "; ".join(f"{key.namespace}/{key.name}: {fault.message}" for key, fault in each[:_NAMED])
    more = f"; and {len(each) - _NAMED} more" if len(each) > _NAMED else ""
    first = each[0][1]
    return Verdict(ConditionType.ADAPTERS_LOADED, "False", first.reason, f"{text}; {shown}{more}")


def _look_again(told: list[_Pod]) -> float | None:
    if any(pod.pending for pod in told):
        return _LOADING_SECONDS
    if any(pod.held is None or pod.failed for pod in told):
        return _TROUBLE_SECONDS
    return _CALM_SECONDS if told else None
