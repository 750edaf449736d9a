"""The queries of the scaler, built from known names and escaped labels, and read back into signals. Pure.

One query asks for all tasks, or all decoders, at once: their number does not grow with the fleet. Nothing in a query
comes from an object, so no name can change what is asked.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sunfleet_api import metrics
from sunfleet_operator.autoscale.signals import DecodeSignals, PrefillSignals
from sunfleet_operator.figures import Figures

_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_NAMES: Final = re.compile(r"(?<![\w:\"])[a-zA-Z_:][\w:]*(?=\s*[{\[])")
# Where a router replica was seen within so long and cannot be scraped now, its load is not in the sums.
_REMEMBER_ROUTERS: Final = "1h"


@dataclass(frozen=True)
class Sample:
    """One series of an instant query."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Queries:
    """Texts by the field of the signals that they fill."""

    prefill: Mapping[str, str]
    decode: Mapping[str, str]
    window: int  # seconds that rates are over
    silent: str  # router replicas that cannot be scraped
    told: str  # how many router replicas the sums hold
    work: str  # requests per engine pod

    def every(self) -> list[str]:
        return [*self.prefill.values(), *self.decode.values(), self.silent, self.told, self.work]


def queries(window_seconds: int, matchers: Mapping[str, str]) -> Queries:
    """All queries. ``matchers`` pick this installation's series where one Prometheus holds several (``cluster="a"``);
    rates are over ``window_seconds``."""
    where, window = selector(matchers), f"[{window_seconds}s]"
    half = window_seconds // 2

    def gauge(how: str, by: str, name: str) -> str:
        return f"{how} by ({by}) ({known(name)}{where})"

    def rate(by: str, name: str) -> str:
        return f"sum by ({by}) (rate({known(name)}{where}{window}))"

    def arriving(seconds: int) -> str:
        """What is served and by how much the backlog grows: that it shrinks faster than the rates say is rounding. The
        backlog of a router that was restarted meanwhile has not been worked off: it counts as unchanged."""
        tokens, backlog = known(metrics.PROMPT_TOKENS), known(metrics.PREFILL_BACKLOG)
        served = f"sum by (task) (rate({tokens}{where}[{seconds}s]))"
        trusted = f"delta({backlog}{where}[{seconds}s]) unless resets({tokens}{where}[{seconds}s]) > 0"
        return f"clamp_min({served} + (sum by (task) ({trusted}) / {seconds} or 0 * {served}), 0)"

    def age(by: str, name: str) -> str:
        return f"time() - max by ({by}) (timestamp({known(name)}{where}))"

    prefill = {
        "age": age("task", metrics.IN_FLIGHT),
        "in_flight": f"{gauge('sum', 'task', metrics.IN_FLIGHT)} + {gauge('sum', 'task', metrics.QUEUE_DEPTH)}",
        "requests": f"sum by (task) (increase({known(metrics.REQUESTS_ENDED)}{where}{window}))",
        "backlog": gauge("sum", "task", metrics.PREFILL_BACKLOG),
        "oldest": gauge("max", "task", metrics.PREFILL_OLDEST),
        "token_rate": rate("task", metrics.PROMPT_TOKENS),
        "prompt_rate": rate("task", metrics.PREFILLS),
        "square_rate": rate("task", metrics.PROMPT_TOKENS_SQUARED),
        "concurrency": rate("task", metrics.PREFILL_SECONDS),
        "arriving": arriving(window_seconds),
        "recent": arriving(half),
    }
    decode = {
        "age": age("decoder", metrics.KV_RESERVED),
        "reserved": gauge("sum", "decoder", metrics.KV_RESERVED),
        "queued": gauge("sum", "decoder", metrics.KV_QUEUED),
        # Every replica sees all pods.
        "capacity": gauge("max", "decoder", metrics.KV_CAPACITY),
        "endpoints": gauge("max", "decoder", metrics.DECODE_ENDPOINTS),
    }
    seen = f"last_over_time({known(metrics.SYNCED)}{where}[{_REMEMBER_ROUTERS}])"
    silent = f"count(({known(metrics.UP)}{where} == 0) and on (job, instance) {seen})"
    running, waiting = (gauge("sum", "namespace, pod", name) for name in (metrics.RUNNING, metrics.WAITING))
    told = f"count({known(metrics.SYNCED)}{where})"
    return Queries(prefill, decode, window_seconds, silent, told, f"{running} + {waiting}")


def by_revision(seconds: int, matchers: Mapping[str, str]) -> dict[str, str]:
    """What became of the requests of every revision within so many seconds. All tasks at once: see above."""
    where, window = selector(matchers), f"[{seconds}s]"

    def increase(name: str, *more: str) -> str:
        return f"sum by ({', '.join(('task', 'revision', *more))}) (increase({known(name)}{where}{window}))"

    return {
        "requests": increase(metrics.REVISION_REQUESTS, "outcome"),
        "seconds": increase(metrics.REVISION_SECONDS),
        "tokens": increase(metrics.REVISION_TOKENS),
    }


def revision_figures(answers: Mapping[str, Iterable[Sample]], task: str) -> dict[str, Figures]:
    """From the answers to :func:`by_revision`, those of one task."""
    sums: defaultdict[str, dict[str, float]] = defaultdict(
        lambda: dict.fromkeys(("ok", "failed", "seconds", "tokens"), 0.0)
    )
    for name, samples in answers.items():
        for sample in samples:
            if sample.labels.get("task") == task:
                what = sample.labels.get("outcome", "") if name == "requests" else name
                sums[sample.labels.get("revision", "")][what] = sample.value
    return {
        revision: Figures(found["ok"] + found["failed"], found["failed"], found["seconds"], found["tokens"])
        for revision, found in sums.items()
    }


def known(name: str) -> str:
    """``name``, if anything exports it; a mistyped metric would read as "no load"."""
    if name not in metrics.KNOWN:
        raise ValueError(f"metric {name!r} is not exported by router or engine: see sunfleet_api.metrics")
    return name


def selector(matchers: Mapping[str, str]) -> str:
    """``{a="b"}``, values escaped; empty without matchers."""
    return f"{{{','.join(_matcher(name, value) for name, value in sorted(matchers.items()))}}}" if matchers else ""


def _matcher(name: str, value: str) -> str:
    if not _LABEL.fullmatch(name):
        raise ValueError(f"label name {name!r}: letters, digits and _, not beginning with a digit")
    escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'{name}="{escaped}"'


def named(query: str) -> set[str]:
    """Metric names that a query selects; for checks of queries that were written by hand."""
    return set(_NAMES.findall(re.sub(r'"(?:[^"\\]|\\.)*"', '""', query)))


def prefill_signals(answers: Mapping[str, Iterable[Sample]], task: str) -> PrefillSignals:
    """The figures of one task; what no answer has stays unknown."""
    return PrefillSignals(**{field: _of(samples, "task", task) for field, samples in answers.items()})


def decode_signals(answers: Mapping[str, Iterable[Sample]], decoder: str) -> DecodeSignals:
    """The figures of one pool; ``decoder`` is "namespace/name"."""
    return DecodeSignals(**{field: _of(samples, "decoder", decoder) for field, samples in answers.items()})


def _of(samples: Iterable[Sample], label: str, value: str) -> float | None:
    return next((sample.value for sample in samples if sample.labels.get(label) == value), None)
