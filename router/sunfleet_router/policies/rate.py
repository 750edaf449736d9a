"""A rate per minute as a token bucket. Pure: the clock is the caller's."""

from __future__ import annotations

import math


class Bucket:
    """Holds a minute's worth at most, and starts full.

    A cost above what a full bucket holds is let in by a full one, which then owes the rest: such a request is rare
    rather than impossible. A cost that was estimated is corrected by :meth:`give_back`.
    """

    def __init__(self, per_minute: float, now: float) -> None:
        self.per_minute = per_minute
        self._level = float(per_minute)
        self._at = now

    def resize(self, per_minute: float, now: float) -> None:
        """Another rate from now on; the bucket stays as full, or as deep in debt, as it is in proportion."""
        if per_minute != self.per_minute:
            self._refill(now)
            self._level *= per_minute / self.per_minute
            self.per_minute = per_minute

    def take(self, cost: float, now: float) -> float:
        """0 if ``cost`` was taken; else the seconds after which it could be, and nothing was taken."""
        self._refill(now)
        missing = min(cost, self.per_minute) - self._level
        if missing > 0:
            return missing * 60 / self.per_minute
        self._level -= cost
        return 0.0

    def give_back(self, cost: float) -> None:
        """Less was used than was taken (more, if negative)."""
        self._level = min(self._level + cost, self.per_minute)

    def is_full(self, now: float) -> bool:
        """Whether forgetting it changes nothing."""
        self._refill(now)
        return math.isclose(self._level, self.per_minute)

    def _refill(self, now: float) -> None:
        self._level = min(self._level + (now - self._at) * self.per_minute / 60, self.per_minute)
        self._at = now
