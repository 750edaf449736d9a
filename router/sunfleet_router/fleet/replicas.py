"""What this router's share of a limit is: limits are those of all replicas together, and each has an equal part. Pure.

Replicas share no store. Where clients spread over them evenly, as a Service spreads connections, equal parts add up to
the limit; parts are rounded up, so that a small limit still lets everybody in.
"""

from __future__ import annotations

import math
from typing import overload


class Replicas:
    """How many routers serve, this one among them. Discovery keeps ``count`` current."""

    def __init__(self, count: int = 1) -> None:
        self._count = max(1, count)

    @property
    def count(self) -> int:
        return self._count

    @count.setter
    def count(self, found: int) -> None:
        self._count = max(1, found)  # this one serves, whatever others know of it

    @overload
    def part(self, limit: int) -> int: ...
    @overload
    def part(self, limit: None) -> None: ...
    @overload
    def part(self, limit: int | None) -> int | None: ...
    def part(self, limit: int | None) -> int | None:
        """This router's part of what may be there at once; ``None``: any number."""
        return limit if limit is None or self._count == 1 else math.ceil(limit / self._count)

    def rate(self, per_minute: int) -> float:
        """This router's part of a rate, exactly: a bucket may hold less than one request."""
        return per_minute / self._count
