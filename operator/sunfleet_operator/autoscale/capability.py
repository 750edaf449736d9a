"""What one pod can do, and how much prompts vary, learnt from what was done. Pure.

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
# Of prompts: evidence halves after so many; and what is assumed before any was seen counts as so many.
HALF_LIFE_PROMPTS: Final = 2000.0
ASSUMED_PROMPTS: Final = 50.0
ASSUMED_VARIABILITY: Final = 1.0  # of an exponential distribution, the usual assumption of queues


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


@dataclass(frozen=True)
class Lengths:
    """Faded sums over prompts: how many, their tokens, and the squares of these."""

    prompts: float = 0.0
    tokens: float = 0.0
    squares: float = 0.0

    @property
    def variability(self) -> float:
        """Squared coefficient of variation: 0 where all are equally long."""
        if self.tokens <= 0:
            return ASSUMED_VARIABILITY
        seen = max(0.0, self.squares * self.prompts / self.tokens**2 - 1)
        known = self.prompts / (self.prompts + ASSUMED_PROMPTS)
        return known * seen + (1 - known) * ASSUMED_VARIABILITY


def seen(before: Lengths, *, prompt_rate: float, token_rate: float, square_rate: float, seconds: float) -> Lengths:
    """Take in ``seconds`` of prompts. Rates that cannot be true, or of which one is missing (0), teach nothing."""
    prompts = prompt_rate * seconds
    if prompts <= 0 or square_rate * prompt_rate < 0.99 * token_rate**2 or token_rate <= 0:
        return before
    fade = 0.5 ** (prompts / HALF_LIFE_PROMPTS)
    return Lengths(
        before.prompts * fade + prompts,
        before.tokens * fade + token_rate * seconds,
        before.squares * fade + square_rate * seconds,
    )
