"""A series as one line of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_BARS: Final = " ▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """The largest of each stretch, from empty at 0 to full at the largest of all."""
    if not values:
        return ""
    top = max(values) or 1.0
    step = max(1.0, len(values) / width)
    count = min(width, len(values))
    tops = (max(values[int(at * step) : max(int(at * step) + 1, int((at + 1) * step))]) for at in range(count))
    return "".join(_BARS[round(value / top * (len(_BARS) - 1))] for value in tops)
