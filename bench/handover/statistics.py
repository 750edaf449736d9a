"""Two series that were measured in turns, compared neighbour by neighbour. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

RESAMPLES = 4000


Start = tuple[Sequence[float], Sequence[float]]  # ours and theirs, of the same length, in the order of measuring


@dataclass(frozen=True)
class Estimate:
    """Each start's median, averaged over starts, with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Compared:
    """Medians of both; ``ratio`` and ``more``, the difference, are those of neighbours."""

    ours: float
    theirs: float
    ratio: Estimate
    more: Estimate


def compare(starts: Sequence[Start]) -> Compared:
    """``starts``: what was measured on engines that ran at the same time."""
    ours, theirs = (median(value for start in starts for value in start[side]) for side in (0, 1))
    pairs = [list(zip(*start, strict=True)) for start in starts]
    ratio = estimate([[a / b for a, b in start] for start in pairs])
    return Compared(ours, theirs, ratio, estimate([[a - b for a, b in start] for start in pairs]))


def estimate(starts: Sequence[Sequence[float]]) -> Estimate:
    """Starts first, then their requests are drawn by the bootstrap: engines differ more from start to start."""
    rng = random.Random(0)  # noqa: S311 - the same interval for the same figures

    def drawn(start: Sequence[float]) -> float:
        return median(rng.choices(start, k=len(start)))

    means = sorted(fmean(drawn(start) for start in rng.choices(starts, k=len(starts))) for _ in range(RESAMPLES))
    low, high = means[RESAMPLES * 25 // 1000], means[RESAMPLES * 975 // 1000 - 1]
    return Estimate(fmean(median(start) for start in starts), low, high)
