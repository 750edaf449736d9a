"""Two series that were measured in turns, compared neighbour by neighbour. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

RESAMPLES = 4000


@dataclass(frozen=True)
class Compared:
    """Medians of both, and the median ratio of neighbours with the 95 % interval of its bootstrap."""

    ours: float
    theirs: float
    ratio: float
    low: float
    high: float


def compare(ours: Sequence[float], theirs: Sequence[float]) -> Compared:
    """Series of the same length, in the order in which they were measured."""
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    rng = random.Random(0)  # noqa: S311 - the same interval for the same figures
    medians = sorted(median(rng.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    low, high = medians[RESAMPLES * 25 // 1000], medians[RESAMPLES * 975 // 1000 - 1]
    return Compared(median(ours), median(theirs), median(ratios), low, high)
