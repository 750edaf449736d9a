"""What was measured, frozen. ``None`` is "unknown", which is never taken for 0. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class PrefillSignals:
    """Of one task, summed over router replicas. Rates are per second over the query window."""

    age: float | None = None  # seconds since the newest sample
    in_flight: float | None = None  # requests, from admission to the last byte, also those that are held
    requests: float | None = None  # that ended within the window, whatever their outcome
    backlog: float | None = None  # prompt tokens that wait for, or are in, their prefill leg
    oldest: float | None = None  # seconds that the oldest of those has been there
    token_rate: float | None = None  # prompt tokens that were prefilled
    prompt_rate: float | None = None  # prompts that were prefilled
    square_rate: float | None = None  # squares of their tokens; routers of an earlier version do not tell
    concurrency: float | None = None  # prefill legs under way at a time, on average
    arriving: float | None = None  # prompt tokens that came: those prefilled, and by how much the backlog grew
    recent: float | None = None  # the same over the newer half of the window; unknown if there is one sample in it


@dataclass(frozen=True)
class DecodeSignals:
    """Of one decode pool, summed over tasks and router replicas. In KV tokens."""

    age: float | None = None
    reserved: float | None = None  # promised to requests under way: prompt and longest answer
    queued: float | None = None  # wanted by requests that wait for room
    capacity: float | None = None  # of all ready pods
    endpoints: float | None = None  # ready pods, as the routers see them


Signals = PrefillSignals | DecodeSignals


def together(each: Iterable[Signals | None]) -> PrefillSignals | None:
    """Of tasks that share pods. ``None``: none of them could be asked for.

    A task that no router has told of yet has no figures, and adds nothing; without any that has, all stay unknown. A
    figure that a told task lacks is unknown for all.
    """
    found = [one for one in each if isinstance(one, PrefillSignals)]
    known = [one for one in found if one.age is not None]
    if not known:
        return PrefillSignals() if found else None
    sums = {}
    for field in fields(PrefillSignals):
        values = [getattr(one, field.name) for one in known]
        whole = [value for value in values if value is not None]
        add = max if field.name in {"age", "oldest"} else math.fsum
        sums[field.name] = add(whole) if len(whole) == len(values) else None
    return PrefillSignals(**sums)


def missing(signals: Signals, needed: tuple[str, ...]) -> list[str]:
    """Which of ``needed`` cannot be used: absent, not a number, or below 0 (a metric that lies)."""
    return [name for name in needed if not usable(getattr(signals, name))]


def usable(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value >= 0


def figures(signals: Signals) -> dict[str, str]:
    """As decimal strings, for status and logs; what is unknown is left out."""
    found = ((field.name, getattr(signals, field.name)) for field in fields(signals))
    return {camel(name): number(value) for name, value in found if usable(value)}


def number(value: float) -> str:
    """At most three decimals, without trailing zeros."""
    return f"{value:.3f}".rstrip("0").rstrip(".")


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)
