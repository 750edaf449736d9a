"""What one object's decisions must remember from one time to the next. Frozen; lost with the process, which is safe:
the windows and the idle clock then begin anew. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sunfleet_operator.autoscale.behavior import History
from sunfleet_operator.autoscale.capability import Lengths, Throughput


@dataclass(frozen=True)
class State:
    """Times are seconds of the caller's clock; ``None`` is "not yet"."""

    history: History = field(default_factory=History)
    throughput: Throughput = field(default_factory=Throughput)
    lengths: Lengths = field(default_factory=Lengths)
    capacity_per_pod: float | None = None  # KV tokens of a decode pod, as last seen
    decided_at: float | None = None
    seen_at: float | None = None  # metrics could be used
    blind_since: float | None = None
    hole_since: float | None = None  # the load is not known, or not to be acted on
    held_at: float | None = None  # the last time within such a hole, of those that are longer than rates look back
    active_at: float | None = None  # work was there, or no pod was Ready yet
    needs: tuple[tuple[float, float], ...] = ()  # (time, need), for the trend
    last_count: int | None = None


@dataclass(frozen=True)
class Pods:
    """An object's pods as the API server knows them. ``wanted`` is the present replica count of its children."""

    wanted: int
    ready: int = 0
    live: int = 0  # not terminating, whether Ready or not
    terminating: int = 0
    each: Mapping[str, int] = field(default_factory=dict)  # what one pod takes of each budgeted resource
    startup_seconds: float | None = None  # from creation to Ready, of pods that got there
    surge: int = 0  # pods above ``wanted`` that a roll-out would like to have
