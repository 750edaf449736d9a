"""Figures of a run: medians over rounds, what is left after the floor is taken off, and the bars. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

# Whose time is taken off whose: a client that makes both legs itself, and one that makes one.
FLOORS: Final = {"ours": "direct", "vllm-router": "direct", "haproxy": "direct-plain"}

Sample = dict[str, Any]


@dataclass(frozen=True)
class Measure:
    """One measurement: what the load generator printed, and the machine's other load in cores."""

    contender: str
    scenario: str
    round: int
    foreign: float
    said: Sample


@dataclass(frozen=True)
class Spread:
    """Median and range over rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        return cls(statistics.median(values), min(values), max(values)) if values else None

    def __str__(self) -> str:
        return f"{short(self.median)} [{short(self.low)}..{short(self.high)}]"


def short(value: float) -> str:
    """Three digits that matter."""
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}"


@dataclass(frozen=True)
class Figure:
    """A column of a scenario's table. ``floored``: also printed with the floor taken off."""

    title: str
    read: Callable[[Sample], float | None]
    floored: bool = False


def _path(*keys: str) -> Callable[[Sample], float | None]:
    def read(said: Sample) -> float | None:
        value: Any = said
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return None if value is None else float(value)

    return read


def _cpu_per(key: str, scale: float) -> Callable[[Sample], float | None]:
    """Milliseconds of CPU for ``scale`` of what ``key`` counts."""

    def read(said: Sample) -> float | None:
        if not said.get(key) or said.get("cpu_s") is None:
            return None
        return 1000.0 * float(said["cpu_s"]) * scale / float(said[key])

    return read


REQUESTS = Figure("requests/s", _path("requests_per_s"))
CHUNKS = Figure("chunks/s", _path("chunks_per_s"))
TTFT = Figure("TTFT p50 ms", _path("ttft_ms", "p50"), floored=True)
GAP = Figure("gap p99 ms", _path("gap_ms", "p99"), floored=True)
CPU_REQUEST = Figure("CPU ms/request", _cpu_per("requests", 1))
CPU_CHUNKS = Figure("CPU ms/1000 chunks", _cpu_per("chunks", 1000))
RSS = Figure("peak RSS MB", _path("rss_mb"))
TOTAL = Figure("p50 ms", _path("total_ms", "p50"), floored=True)
_WHOLE = (REQUESTS, TOTAL, Figure("p99 ms", _path("total_ms", "p99")), CPU_REQUEST, RSS)
_STREAM = (CHUNKS, TTFT, Figure("TTFT p99 ms", _path("ttft_ms", "p99")), GAP, CPU_CHUNKS, RSS)


def figures(stream: bool) -> tuple[Figure, ...]:
    return _STREAM if stream else _WHOLE


def spread(measures: Iterable[Measure], contender: str, scenario: str, figure: Figure) -> Spread | None:
    values = [figure.read(one.said) for one in measures if (one.contender, one.scenario) == (contender, scenario)]
    return Spread.of([value for value in values if value is not None])


def above_floor(measures: Sequence[Measure], contender: str, scenario: str, figure: Figure) -> float | None:
    """The median without the floor's median; ``None`` where there is no floor."""
    floor = FLOORS.get(contender)
    mine = spread(measures, contender, scenario, figure)
    theirs = spread(measures, floor, scenario, figure) if floor else None
    return mine.median - theirs.median if mine and theirs else None


def failures(measures: Iterable[Measure], contender: str, scenario: str) -> dict[str, int]:
    """Requests that did not end as they should, by what befell them."""
    found: dict[str, int] = {}
    for one in measures:
        if (one.contender, one.scenario) == (contender, scenario):
            for outcome, count in one.said["outcomes"].items():
                if outcome != "ok":
                    found[outcome] = found.get(outcome, 0) + count
    return found


def worthless(measures: Iterable[Measure]) -> list[str]:
    """Measurements in which requests failed, or in which there were none: their figures mean nothing."""
    return [
        f"{one.contender} ({one.scenario})"
        for one in measures
        if not one.said["requests"] or set(one.said["outcomes"]) - {"ok"}
    ]


@dataclass(frozen=True)
class Bar:
    """What the router must reach against its best peer; ``got`` and ``wanted`` as printed."""

    what: str
    got: float
    wanted: float
    more_is_better: bool

    @property
    def held(self) -> bool:
        return self.got >= self.wanted if self.more_is_better else self.got <= self.wanted


def bars(measures: Sequence[Measure], peer: str = "vllm-router") -> list[Bar]:
    """Ratios to ``peer`` where it was measured, and the time that the router adds to both legs."""

    def median(contender: str, scenario: str, figure: Figure) -> float | None:
        found = spread(measures, contender, scenario, figure)
        return found.median if found else None

    ratios = (
        ("a", REQUESTS, 1.5, True), ("b", CHUNKS, 3.0, True), ("c", GAP, 1.0, False), ("c", CPU_CHUNKS, 0.9, False),
        ("c50", GAP, 1.0, False), ("c50", CPU_CHUNKS, 0.9, False), ("d", REQUESTS, 1.5, True),
        *((scenario, RSS, 1.0, False) for scenario in ("a", "b", "c", "d")),
    )  # fmt: skip
    found = []
    for scenario, figure, factor, more in ratios:
        mine, theirs = median("ours", scenario, figure), median(peer, scenario, figure)
        if mine is not None and theirs is not None:
            found.append(Bar(f"{scenario}: {figure.title}, {factor:g} x {peer}", mine, factor * theirs, more))
    for scenario in ("c", "c50"):
        added = above_floor(measures, "ours", scenario, TTFT)
        if added is not None:
            found.append(Bar(f"{scenario}: added TTFT p50 ms", added, 1.0, more_is_better=False))
    return found
