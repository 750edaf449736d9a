"""What one pod can do, learnt from what pods did. Pure.

Prefill: prompt tokens per second of a pod that is busy. With ``concurrency`` legs under way on average and ``ready``
pods, at most ``min(concurrency, ready)`` pods were busy, so tokens over busy seconds is what a busy pod makes. Old
evidence fades, so a new revision or a busier node is learnt within minutes of work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Evidence halves after so many busy pod seconds, and counts at all from so many on.
HALF_LIFE_SECONDS: Final = 600.0
LEAST_SECONDS: Final = 10.0


@dataclass(frozen=True)
class Throughput:
    """Faded sums of tokens made and of the seconds that pods were busy making them."""

    tokens: float = 0.0
    busy_seconds: float = 0.0

    @property
    def per_pod(self) -> float | None:
        """Tokens per second of a busy pod; ``None`` while there is too little evidence."""
        if self.busy_seconds < LEAST_SECONDS or self.tokens <= 0:
            return None
        return self.tokens / self.busy_seconds

    @classmethod
    def known(cls, per_pod: float) -> Throughput:
        """From a figure that was learnt before (a status): just enough to be believed until there is newer evidence."""
        return cls(per_pod * LEAST_SECONDS, LEAST_SECONDS)


def learn(before: Throughput, *, token_rate: float, concurrency: float, ready: int, seconds: float) -> Throughput:
    """Take in ``seconds`` during which ``token_rate`` tokens a second were made."""
    busy = min(concurrency, ready) * seconds
    if busy <= 0 or token_rate <= 0:
        return before
    fade = 0.5 ** (busy / HALF_LIFE_SECONDS)
    return Throughput(before.tokens * fade + token_rate * seconds, before.busy_seconds * fade + busy)
