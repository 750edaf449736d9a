"""What a fleet does now: two looks at its routers' metrics, and the rates between them. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from sunfleet_api import metrics

TASK_COLUMNS: Final = (
    "task", "requests/s", "prompt tok/s", "output tok/s", "ttft", "in flight", "queue", "backlog tok", "prefill pods",
)  # fmt: skip
POOL_COLUMNS: Final = ("decoder", "pods", "kv reserved", "kv tokens", "in use", "kv queued")
Series = Mapping[tuple[str, str], float]  # (metric, value of its one label "task" or "decoder") -> sum


@dataclass(frozen=True)
class Look:
    """One moment: seconds of any clock, and the series of each router pod."""

    at: float
    routers: Mapping[str, Series]


@dataclass(frozen=True)
class Task:
    """One model, all routers together. Rates are per second; ``ttft`` is the mean of the streams that began, in
    seconds, ``None`` when none did."""

    task: str
    requests_per_second: float
    prompt_tokens_per_second: float
    output_tokens_per_second: float
    ttft_seconds: float | None
    in_flight: int
    queue: int
    backlog_tokens: int
    prefill_pods: int

    def cells(self) -> list[str]:
        ttft = "" if self.ttft_seconds is None else f"{self.ttft_seconds * 1000:.0f} ms"
        rates = (self.requests_per_second, self.prompt_tokens_per_second, self.output_tokens_per_second)
        counts = (self.in_flight, self.queue, self.backlog_tokens, self.prefill_pods)
        return [self.task, *(f"{rate:.1f}" for rate in rates), ttft, *map(str, counts)]


@dataclass(frozen=True)
class Pool:
    """One decode pool. KV in tokens: promised to requests under way, wanted by those that wait, and what there is."""

    decoder: str
    pods: int
    kv_reserved_tokens: int
    kv_capacity_tokens: int
    kv_queued_tokens: int

    def cells(self) -> list[str]:
        used = f"{self.kv_reserved_tokens / self.kv_capacity_tokens:.0%}" if self.kv_capacity_tokens else ""
        counts = (self.pods, self.kv_reserved_tokens, self.kv_capacity_tokens)
        return [self.decoder, *map(str, counts), used, str(self.kv_queued_tokens)]


@dataclass(frozen=True)
class Now:
    """The fleet between two looks ``seconds`` apart, as ``routers`` pods saw it."""

    seconds: float
    routers: int
    tasks: tuple[Task, ...]
    pools: tuple[Pool, ...]

    def data(self) -> dict[str, Any]:
        """As plain values, in the order of the tables."""
        plain = {name: [_plain(one) for one in getattr(self, name)] for name in ("tasks", "pools")}
        return {"seconds": round(self.seconds, 3), "routers": self.routers, **plain}


def _plain(one: Task | Pool) -> dict[str, Any]:
    found = ((field.name, getattr(one, field.name)) for field in fields(one))
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in found}


def parsed(text: str) -> dict[tuple[str, str], float]:
    """Series of a router's ``/metrics``, summed over all labels but the task or the decoder; ``ValueError`` if it is
    none."""
    found: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            label = "decoder" if "decoder" in sample.labels else "task"
            if label in sample.labels:
                key = sample.name, sample.labels[label]
                found[key] = found.get(key, 0.0) + sample.value
    return found


def now(before: Look, after: Look) -> Now:
    """Between two looks. A router that was there at only one of them has a load, but no rates yet."""
    seconds = after.at - before.at
    names = sorted(_labels(after, metrics.IN_FLIGHT))
    decoders = sorted(_labels(after, metrics.KV_CAPACITY))
    grown = _grown(before, after)
    return Now(
        seconds,
        len(after.routers),
        tuple(_task(name, grown, after, seconds) for name in names),
        tuple(_pool(name, after) for name in decoders),
    )


def _labels(look: Look, metric: str) -> set[str]:
    return {label for series in look.routers.values() for name, label in series if name == metric}


def _grown(before: Look, after: Look) -> dict[tuple[str, str], float]:
    """By how much each counter grew, all routers together; one that fell began anew at 0, as Prometheus reads it."""
    found: dict[tuple[str, str], float] = {}
    for pod, series in after.routers.items():
        if pod not in before.routers:
            continue
        for key, value in series.items():
            old = before.routers[pod].get(key, 0.0)
            found[key] = found.get(key, 0.0) + (value - old if value >= old else value)
    return found


def _task(name: str, grown: Series, look: Look, seconds: float) -> Task:
    def rate(metric: str) -> float:
        return grown.get((metric, name), 0.0) / seconds if seconds > 0 else 0.0

    begun = grown.get((metrics.TTFT_COUNT, name), 0.0)
    return Task(
        name,
        rate(metrics.REQUESTS_ENDED),
        rate(metrics.PROMPT_TOKENS),
        rate(metrics.OUTPUT_TOKENS),
        grown[metrics.TTFT_SECONDS, name] / begun if begun else None,
        _total(look, metrics.IN_FLIGHT, name),
        _total(look, metrics.QUEUE_DEPTH, name),
        _total(look, metrics.PREFILL_BACKLOG, name),
        _seen(look, metrics.PREFILL_ENDPOINTS, name),
    )


def _pool(name: str, look: Look) -> Pool:
    return Pool(
        name,
        _seen(look, metrics.DECODE_ENDPOINTS, name),
        _total(look, metrics.KV_RESERVED, name),
        _seen(look, metrics.KV_CAPACITY, name),
        _total(look, metrics.KV_QUEUED, name),
    )


def _each(look: Look, metric: str, label: str) -> list[float]:
    found = (series.get((metric, label), 0.0) for series in look.routers.values())
    return [value for value in found if math.isfinite(value)]


def _total(look: Look, metric: str, label: str) -> int:
    """Each router has a part of it."""
    return round(sum(_each(look, metric, label)))


def _seen(look: Look, metric: str, label: str) -> int:
    """Every router sees all of it."""
    return round(max(_each(look, metric, label), default=0.0))


def sums(tasks: Sequence[Task]) -> list[str]:
    """The last line of the table."""

    def total(values: Iterable[float]) -> str:
        return f"{sum(values):.1f}"

    rates = (
        total(one.requests_per_second for one in tasks),
        total(one.prompt_tokens_per_second for one in tasks),
        total(one.output_tokens_per_second for one in tasks),
    )
    counts = (
        sum(one.in_flight for one in tasks), sum(one.queue for one in tasks), sum(one.backlog_tokens for one in tasks),
        sum(one.prefill_pods for one in tasks),
    )  # fmt: skip
    return ["all", *rates, "", *map(str, counts)]
