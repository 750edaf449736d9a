"""Cost curves from what was measured on engines: straight lines, by least squares. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import linear_regression

from sunfleet_cli.sim.costs import Costs


class FitError(ValueError):
    """The figures make no curve; the message says which and why."""


@dataclass(frozen=True)
class Prefill:
    """A request that had the fleet to itself: tokens of its prompt, seconds to its first token."""

    prompt_tokens: int
    seconds: float


@dataclass(frozen=True)
class Decode:
    """Requests side by side: how many, and the seconds of each one's further tokens."""

    streams: int
    seconds_per_token: float


@dataclass(frozen=True)
class Known:
    """What no request shows."""

    source: str
    kv_tokens: int
    prefill_startup_seconds: float
    decode_startup_seconds: float
    gpus_per_pod: int


def fitted(prefills: Sequence[Prefill], decodes: Sequence[Decode], known: Known) -> Costs:
    """The time to a first token holds the hand-over too: it is part of ``prefill_seconds``, and ``transfer_seconds`` 0.
    Of decode pods as many streams are counted as there were in all, so measure with one of them."""
    slope, begin = _line([(one.prompt_tokens, one.seconds) for one in prefills], "prompt lengths")
    if slope <= 0:
        raise FitError("longer prompts took no more time: take longer ones, or repeat on a fleet that nobody uses")
    per_stream, per_token = _line([(one.streams, one.seconds_per_token) for one in decodes], "counts of streams")
    fastest = min(one.seconds_per_token for one in decodes)
    return Costs(
        source=known.source,
        prefill_tokens_per_second=1 / slope,
        prefill_seconds=max(0.0, begin),
        decode_seconds=per_token if per_stream > 0 and per_token > 0 else fastest,
        decode_stream_seconds=per_stream if per_stream > 0 and per_token > 0 else 0.0,
        kv_tokens=known.kv_tokens,
        prefill_startup_seconds=known.prefill_startup_seconds,
        decode_startup_seconds=known.decode_startup_seconds,
        gpus_per_pod=known.gpus_per_pod,
    )


def _line(points: Sequence[tuple[float, float]], what: str) -> tuple[float, float]:
    """Slope and beginning."""
    if len({x for x, _ in points}) < 2:
        raise FitError(f"a curve needs at least two different {what}")
    found = linear_regression([x for x, _ in points], [y for _, y in points])
    return found.slope, found.intercept
