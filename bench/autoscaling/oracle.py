"""The cheapest fleet that somebody who knows the trace would run: at equal attainment, for comparison. Pure.

One oracle is no yardstick: with more room it attains more and costs more. So there are many, each with another share
of its pods' time in use and another length of the stretches it looks at, and a policy is compared with the cheapest of
them that attains at least as much as it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from sunfleet_cli.sim.policies import Oracle, Policy
from sunfleet_cli.sim.trace import Request

HEADROOMS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2)
BINS = (15.0, 30.0)
Make = Callable[[Sequence[Request]], Policy]


@dataclass(frozen=True)
class Point:
    """GPU hours, and the share of requests within the SLO."""

    gpu_hours: float
    attained: float


def oracles() -> list[Make]:
    return [partial(Oracle, bin_seconds=bin_, headroom=room) for bin_ in BINS for room in HEADROOMS]


def cheapest(points: Sequence[Point], attained: float) -> Point | None:
    """The one to compare with; ``None`` where none attains so much."""
    return min((one for one in points if one.attained >= attained), key=lambda one: one.gpu_hours, default=None)
