"""How sure a share of right answers is: Wilson's interval, which holds for few rows and for none or all right."""

from __future__ import annotations

import math
from typing import Final

_Z: Final = 1.959964  # 95 %


def wilson(correct: int, total: int) -> tuple[float, float]:
    """The 95 % interval of the share of right answers, both ends in 0..1."""
    if not 0 <= correct <= total or total == 0:
        raise ValueError(f"{correct} of {total} is no share")
    share_, spread = correct / total, _Z**2 / total
    middle = (share_ + spread / 2) / (1 + spread)
    half = math.sqrt(share_ * (1 - share_) * spread + spread**2 / 4) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


def share(correct: int, total: int) -> str:
    """``30 of 40 (75 %, 95 %: 60-86)``."""
    low, high = wilson(correct, total)
    return f"{correct} of {total} ({100 * correct / total:.0f} %, 95 %: {100 * low:.0f}-{100 * high:.0f})"


def paired(only_first: int, only_second: int) -> float:
    """Two-sided p of McNemar's exact test: could rows that one pair alone gets right fall on either side by chance?"""
    differing = only_first + only_second
    if differing == 0:
        return 1.0
    tail = sum(math.comb(differing, k) for k in range(min(only_first, only_second) + 1)) / 2**differing
    return float(min(1.0, 2 * tail))
