"""How much of a decode pod others have taken: routers share no store, but each engine says how full it is. Pure.

This replica knows its own reservations exactly and at once, so of an engine's figures only the part of the others
counts: its used KV in proportion to the running requests that are not ours. What we have just reserved, and no engine
can show yet, is never lost sight of.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_SERIES: Final = re.compile(
    rb"^vllm:(kv_cache_usage_perc|num_requests_running|num_requests_waiting)(?:\{[^}]*\})? ([0-9.eE+-]+)", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Seen:
    """An engine's own figures: share of its KV that is used, requests in it."""

    usage: float
    requests: int


def read(text: bytes) -> Seen | None:
    """From an engine's ``/metrics``; ``None`` when it does not say. Several engines in one pod count together."""
    values: dict[bytes, list[float]] = {}
    for name, value in _SERIES.findall(text):
        values.setdefault(name, []).append(float(value))
    usage, running = values.get(b"kv_cache_usage_perc"), values.get(b"num_requests_running")
    if not usage or not running:
        return None
    return Seen(sum(usage) / len(usage), int(sum(running) + sum(values.get(b"num_requests_waiting", ()))))


def of_others(seen: Seen, capacity: int, ours: int) -> int:
    """KV tokens that requests of other routers hold on a pod of ``capacity``; ``ours``: its requests that are ours."""
    theirs = max(0, seen.requests - ours)
    return int(seen.usage * capacity * theirs / seen.requests) if theirs else 0
