"""What was decided, why, and from which figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Why(StrEnum):
    """Reasons that people and programs may match on."""

    STEADY = "Steady"  # need and count agree
    LOAD_ROSE = "LoadRose"
    LOAD_FELL = "LoadFell"
    WITHIN_LIMITS = "WithinLimits"  # minReplicas or maxReplicas stands against the need
    STABILIZING = "Stabilizing"  # a stabilisation window or a rate policy holds it back
    IDLE = "Idle"  # scaled to zero
    WOKEN = "Woken"  # work came at zero
    NEVER_READY = "NeverReady"  # nothing to judge by before the first pod serves
    METRICS_MISSING = "MetricsMissing"
    METRICS_STALE = "MetricsStale"
    FALLBACK = "Fallback"
    BUDGET = "BudgetExceeded"  # fewer than needed, or fewer than there were
    PAUSED = "Paused"


# Decisions that come from no usable metrics: the count may only stay or rise.
BLIND = frozenset({Why.METRICS_MISSING, Why.METRICS_STALE, Why.FALLBACK})


@dataclass(frozen=True)
class Decision:
    """``replicas`` to go to now. ``wished`` is what the budget was asked for. ``inputs`` are decimal strings."""

    replicas: int
    why: Why
    message: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    wished: int = 0

    @property
    def blind(self) -> bool:
        return self.why in BLIND
