"""Two series that were measured in turns, compared neighbour by neighbour. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

RESAMPLES = 4000


@dataclass(frozen=True)
class Compared:
    """Medians of both; the ratio of neighbours: each start's median, averaged over starts, with its 95 % interval."""

    ours: float
    theirs: float
    ratio: float
    low: float
    high: float


Start = tuple[Sequence[float], Sequence[float]]  # ours and theirs, of the same length, in the order of measuring


def compare(starts: Sequence[Start]) -> Compared:
    """``starts``: what was measured on engines that ran at the same time.

    Engines differ from start to start more than requests do, so the bootstrap draws starts first, then their requests.
    """
    ratios = [[a / b for a, b in zip(ours, theirs, strict=True)] for ours, theirs in starts]
    rng = random.Random(0)  # noqa: S311 - the same interval for the same figures

    def drawn(start: list[float]) -> float:
        return median(rng.choices(start, k=len(start)))

    means = sorted(fmean(drawn(start) for start in rng.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    low, high = means[RESAMPLES * 25 // 1000], means[RESAMPLES * 975 // 1000 - 1]
    ours, theirs = (median(value for start in starts for value in start[side]) for side in (0, 1))
    return Compared(ours, theirs, fmean(median(start) for start in ratios), low, high)
