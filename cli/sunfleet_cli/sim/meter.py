"""What Prometheus would say of the model: gauges as they are, rates over a window of samples."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from sunfleet_operator.autoscale.signals import DecodeSignals, PrefillSignals


@dataclass
class Totals:
    """Counters of one task since the beginning, and its work under way."""

    tokens: float = 0.0
    squares: float = 0.0  # of the prompts' tokens
    prompts: float = 0.0
    prefill_seconds: float = 0.0
    ended: float = 0.0
    in_flight: int = 0
    backlog: int = 0
    legs: dict[object, float] = field(default_factory=dict)  # prefill legs under way -> since when, oldest first

    def counters(self) -> tuple[float, float, float, float, float, float]:
        """The last one is what came: what was prefilled and what is in the backlog."""
        return self.tokens, self.squares, self.prompts, self.prefill_seconds, self.ended, self.tokens + self.backlog


class Meter:
    """Samples of one task's counters. ``window`` in seconds."""

    def __init__(self, window: float) -> None:
        self._window = window
        self._samples: deque[tuple[float, tuple[float, ...]]] = deque()

    def read(self, totals: Totals, now: float) -> PrefillSignals:
        """Take a sample and say what the window shows; before there are two, rates are unknown, as in Prometheus."""
        self._samples.append((now, totals.counters()))
        while len(self._samples) > 2 and self._samples[0][0] < now - self._window:
            self._samples.popleft()
        oldest = now - next(iter(totals.legs.values())) if totals.legs else 0.0
        begun, before = self._samples[0]
        if now <= begun:
            return PrefillSignals(age=0, in_flight=totals.in_flight, backlog=totals.backlog, oldest=oldest)
        tokens, squares, prompts, seconds, ended, came = (a - b for a, b in zip(totals.counters(), before, strict=True))
        span = now - begun
        return PrefillSignals(
            age=0.0,
            in_flight=float(totals.in_flight),
            requests=ended,
            backlog=float(totals.backlog),
            oldest=oldest,
            token_rate=tokens / span,
            prompt_rate=prompts / span,
            square_rate=squares / span,
            concurrency=seconds / span,
            arriving=came / span,
            recent=self._recent(totals, now),
        )

    def _recent(self, totals: Totals, now: float) -> float | None:
        half = next(((at, old) for at, old in self._samples if at >= now - self._window / 2), None)
        return (totals.counters()[-1] - half[1][-1]) / (now - half[0]) if half and half[0] < now else None


def decode_signals(reserved: int, queued: int, kv_tokens: int, endpoints: int) -> DecodeSignals:
    return DecodeSignals(0.0, float(reserved), float(queued), float(kv_tokens * endpoints), float(endpoints))
