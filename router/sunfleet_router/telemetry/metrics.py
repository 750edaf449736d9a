"""The router's own metrics: prefix ``sunfleet_router_``, base units, labels whose values are bounded by the fleet.

Counters and histograms are written where things happen; gauges are read from the books at scrape time, so they cannot
drift. Every known task is there as 0 from the first snapshot on: an autoscaler must be able to tell "nothing to do"
from "no data".
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from sunfleet_router.admission.decode_room import Admission
from sunfleet_router.admission.gate import Visit
from sunfleet_router.admission.load import Load
from sunfleet_router.bodies.comparing import Outcome
from sunfleet_router.engines.verdict import Reason
from sunfleet_router.errors import Leg, PhaseTimeoutError
from sunfleet_router.fleet.current import Fleet
from sunfleet_router.fleet.replicas import Replicas
from sunfleet_router.fleet.snapshot import Snapshot

PREFIX = "sunfleet_router_"
_REVISION = ("task", "revision")
PHASES: Final = ("queue", "connect", "prefill", "kv_load", "first_token", "inter_token", "request")
STREAM_ENDINGS: Final = ("completed", "failed", "abandoned")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class _Remembering:
    """Finds a child that was asked for before by its labels alone; the library formats and locks for each look-up.

    Mixed into a metric's class.
    """

    _children: Mapping[tuple[object, ...], Any] = MappingProxyType({})

    def labels(self, *values: object, **named: object) -> Any:
        found = None if named else self._children.get(values)
        if found is None:
            found = super().labels(*values, **named)  # type: ignore[misc]
            if not named:
                self._children = {**self._children, values: found}
        return found

    def remove_by_labels(self, labels: dict[str, str]) -> None:
        super().remove_by_labels(labels)  # type: ignore[misc]
        self._children = MappingProxyType({})


class _Cell:
    """In place of the library's values, which have a lock each: the event loop's thread alone writes here, and a
    scrape's reads whole numbers at any time.
    """

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def get(self) -> float:
        return self.value

    def set(self, value: float) -> None:
        self.value = value

    def get_exemplar(self) -> None:
        """None are kept."""


class _Counter(_Remembering, Counter):
    """Without the library's checks and locks: twenty of these are in every request."""

    _value: _Cell

    def add(self, amount: float, *labels: str) -> None:
        """As ``labels(...).inc(amount)``, in one call."""
        try:
            child = self._children[labels]
        except KeyError:
            child = self.labels(*labels)
        child._value.value += amount

    def _metric_init(self) -> None:
        super()._metric_init()
        self._value = _Cell()

    def inc(self, amount: float = 1, exemplar: dict[str, str] | None = None) -> None:  # noqa: ARG002 the library's
        self._value.value += amount


class _Histogram(_Remembering, Histogram):
    """Likewise."""

    _sum: _Cell
    _buckets: list[_Cell]

    def add(self, amount: float, *labels: str) -> None:
        """As ``labels(...).observe(amount)``, in one call."""
        try:
            child = self._children[labels]
        except KeyError:
            child = self.labels(*labels)
        child._sum.value += amount
        child._buckets[bisect_left(child._upper_bounds, amount)].value += 1

    def _metric_init(self) -> None:
        super()._metric_init()
        self._sum = _Cell()
        self._buckets = [_Cell() for _ in self._upper_bounds]


class Metrics:
    """One per process, with its own registry. ``task`` is "" for requests that name no known model."""

    def __init__(
        self, fleet: Fleet, load: Load, admission: Admission, replicas: Replicas, *, native: bool = False
    ) -> None:
        self.registry = CollectorRegistry()
        self._known: frozenset[str] = frozenset()
        self._keys: frozenset[str] = frozenset()
        self._revisions: frozenset[tuple[str, str]] = frozenset()
        self._cells: dict[tuple[str, ...], tuple[_Cell, ...]] = {}
        self.requests = self._counter("requests", "Requests by outcome: 'ok' or an error's code.", "task", "code")
        self.leg_failures = self._counter(
            "leg_failures", "Engine calls that failed or that the engine itself broke off.", "task", "leg", "code"
        )
        self.phase_timeouts = self._counter(
            "phase_timeouts", "Phases of requests that took too long, also where another pod helped.", "task", "phase"
        )
        self.retries = self._counter("retries", "Requests tried again on other pods.", "task")
        self.prompt_tokens = self._counter("prompt_tokens", "Prompt tokens, as the prefill counted them.", "task")
        self.prompt_tokens_squared = self._counter(
            "prompt_tokens_squared", "Squares of the prompts' tokens: how much lengths vary.", "task"
        )
        self.output_tokens = self._counter("output_tokens", "Tokens that were made for clients.", "task")
        self.resumes = self._counter("resumes", "Tries to go on with a broken stream.", "task", "reason")
        self.resumed_streams = self._counter(
            "resumed_streams", "Streams that broke at least once, by how they ended.", "task", "outcome"
        )
        self.replayed_tokens = self._counter(
            "resume_replayed_tokens", "Told tokens handed to the next decoder.", "task"
        )
        self.releases = self._counter("kv_releases", "Calls that free KV which no decoder will read.", "outcome")
        self.shadow_checks = self._counter("shadow_checks", "Answers that were made again.", "task", "outcome")
        self.prefill_only = self._counter("prefill_only", "Answers that needed no decoding.", "task")
        self.request_seconds = self._histogram("request_duration_seconds", "From the body's end to the answer's.")
        self.queue_seconds = self._histogram("queue_duration_seconds", "Waiting for decode room.")
        self.prefill_seconds = self._histogram("prefill_duration_seconds", "The prefill leg, as the router sees it.")
        self.resume_seconds = self._histogram("resume_duration_seconds", "From a break to the next leg's first event.")
        self.first_token_seconds = self._histogram(
            "time_to_first_token_seconds", "Streamed answers: to the first event."
        )
        self.key_requests = self._counter("key_requests", "Requests of an API key by outcome.", "key", "code")
        self.key_tokens = self._counter("key_tokens", "Tokens of an API key: 'prompt' or 'output'.", "key", "kind")
        self.key_gpu_seconds = self._counter("key_gpu_seconds", "As gpu_seconds, of an API key.", "key", "leg")
        self.gpu_seconds = self._counter(
            "gpu_seconds", "GPU time: of prefill pods by prompt tokens, of decode pods by reserved KV.", "task", "leg"
        )
        self.revision_requests = self._counter(
            "revision_requests", "Answers of one revision: 'ok', or 'failed' by its engines.", *_REVISION, "outcome"
        )
        self.revision_seconds = self._counter("revision_seconds", "Until its good answers were whole.", *_REVISION)
        self.revision_tokens = self._counter("revision_output_tokens", "Tokens of its good answers.", *_REVISION)
        Gauge(PREFIX + "native_sockets", "1: sockets are the native pump's; 0: asyncio's.", registry=self.registry).set(
            native
        )
        self.registry.register(_Books(fleet, load, admission, replicas))
        fleet.on_change(self._tasks_changed)

    def _counter(self, name: str, text: str, *labels: str) -> _Counter:
        return _Counter(PREFIX + name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str) -> _Histogram:
        return _Histogram(PREFIX + name, text, ("task",), buckets=_SECONDS, registry=self.registry)

    def _tasks_changed(self, snapshot: Snapshot) -> None:
        names = frozenset(snapshot.tasks)
        for name in names - self._known:
            self.requests.labels(name, "ok")
            for leg in get_args(Leg):
                self.gpu_seconds.labels(name, leg)
            for phase in PHASES:
                self.phase_timeouts.labels(name, phase)
            for reason in get_args(Reason):
                self.resumes.labels(name, reason)
            for ending in STREAM_ENDINGS:
                self.resumed_streams.labels(name, ending)
            for metric in self._per_task():
                metric.labels(name)
        for name in names:
            if snapshot.tasks[name].sample_per_million:
                for outcome in get_args(Outcome):
                    self.shadow_checks.labels(name, outcome)
        self._cells.clear()
        for name in self._known - names:
            for metric in self._every():
                metric.remove_by_labels({"task": name})
        self._known = names
        self._revisions_changed(snapshot)

    def _revisions_changed(self, snapshot: Snapshot) -> None:
        """All are there from the start, as 0: what grows from nothing has no rate."""
        routed = frozenset((task.name, route.revision) for task in snapshot.tasks.values() for route in task.routes)
        for task, revision in routed - self._revisions:
            for outcome in ("ok", "failed"):
                self.revision_requests.labels(task, revision, outcome)
            for metric in (self.revision_seconds, self.revision_tokens):
                metric.labels(task, revision)
        for task, revision in self._revisions - routed:
            for gone in (self.revision_requests, self.revision_seconds, self.revision_tokens):
                gone.remove_by_labels({"task": task, "revision": revision})
        self._revisions = routed

    def answered(self, task: str, revision: str, seconds: float, tokens: int, *, failed: bool) -> None:
        """One answer of a revision is whole, or its engines failed it for good."""
        if failed:
            self.revision_requests.add(1, task, revision, "failed")
            return
        cells = self._cells.get((task, revision)) or self._remember(
            (task, revision),
            self.revision_requests.labels(task, revision, "ok")._value,
            self.revision_seconds.labels(task, revision)._value,
            self.revision_tokens.labels(task, revision)._value,
        )
        requests, total, made = cells
        requests.value += 1
        total.value += seconds
        made.value += tokens

    def prefilled(self, task: str, seconds: float, tokens: int) -> None:
        """One prompt has been prefilled."""
        self.prefill_seconds.add(seconds, task)
        self.prompt_tokens.add(tokens, task)
        self.prompt_tokens_squared.add(tokens * tokens, task)

    def timed_out(self, task: str, late: PhaseTimeoutError) -> None:
        """A phase took too long; the same error counts once."""
        if not late.counted:
            late.counted = True
            self.phase_timeouts.add(1, task, late.phase)

    def finished(self, task: str, key: str, code: str, seconds: float) -> None:
        """One request has been answered, whatever with, so many seconds after its body was whole; ``key`` is "" where
        none are asked for.
        """
        self.requests.add(1, task, code)
        if key:
            self.key_requests.add(1, key, code)
        if task:
            self.request_seconds.add(seconds, task)

    def used(self, visit: Visit) -> None:
        """What one client's request has used in all."""
        name = visit.key.name
        if not name:
            return
        cells = self._cells.get((name,)) or self._remember(
            (name,),
            *(self.key_tokens.labels(name, kind)._value for kind in ("prompt", "output")),
            *(self.key_gpu_seconds.labels(name, leg)._value for leg in ("prefill", "decode")),
        )
        prompt, output, prefill, decode = cells
        prompt.value += visit.prompt
        output.value += visit.output
        prefill.value += visit.gpu_seconds["prefill"]
        decode.value += visit.gpu_seconds["decode"]

    def _remember(self, of: tuple[str, ...], *cells: _Cell) -> tuple[_Cell, ...]:
        """What every request of a key, or of a task's revision, adds to; until a series goes."""
        self._cells[of] = cells
        return cells

    def keys_changed(self, names: frozenset[str]) -> None:
        """Which API keys there are, by name."""
        for name in names - self._keys:
            self.key_requests.labels(name, "ok")
            for kind in ("prompt", "output"):
                self.key_tokens.labels(name, kind)
            for leg in ("prefill", "decode"):
                self.key_gpu_seconds.labels(name, leg)
        self._cells.clear()
        for name in self._keys - names:
            for metric in (self.key_requests, self.key_tokens, self.key_gpu_seconds):
                metric.remove_by_labels({"key": name})
        self._keys = names

    def _every(self) -> tuple[_Counter | _Histogram, ...]:
        """All that have the task among their labels."""
        return (
            self.requests,
            self.leg_failures,
            self.phase_timeouts,
            self.resumes,
            self.resumed_streams,
            self.gpu_seconds,
            self.shadow_checks,
            *self._per_task(),
        )

    def _per_task(self) -> tuple[_Counter | _Histogram, ...]:
        return (
            self.retries, self.prompt_tokens, self.prompt_tokens_squared, self.output_tokens, self.prefill_only,
            self.replayed_tokens,
            self.resume_seconds, self.request_seconds, self.queue_seconds, self.prefill_seconds,
            self.first_token_seconds,
        )  # fmt: skip


class _Books(Collector):
    """Gauges straight from the books of this replica."""

    def __init__(self, fleet: Fleet, load: Load, admission: Admission, replicas: Replicas) -> None:
        self._fleet, self._load, self._admission, self._replicas = fleet, load, admission, replicas

    def collect(self) -> Iterator[GaugeMetricFamily]:
        snapshot, waiting = self._fleet.snapshot, self._admission.waiting
        yield _gauge("synced", "1 once the fleet is known.", (), [((), float(self._fleet.synced))])
        yield _gauge("replicas", "Routers that share the limits.", (), [((), self._replicas.count)])
        ejected = self._load.ejected()
        shunned = len(self._load.suspects() | ejected.keys())
        yield _gauge("shunned_endpoints", "Pods that failed lately: asked only if no other can.", (), [((), shunned)])
        yield _gauge(
            "circuit_open", "1 while every pod for a leg keeps failing: requests hear so at once.", ("task", "leg"),
            [
                ((task.name, leg), float(bool(pods) and all(pod.uid in ejected for pod in pods)))
                for task in snapshot.tasks.values()
                for leg, pods in (("prefill", task.prefill_pods()), ("decode", snapshot.decode_pods(task)))
            ],
        )  # fmt: skip
        per_task = (
            ("in_flight_requests", "Requests being served.", self._load.requests),
            ("queue_depth", "Requests that wait for a pod.", waiting.requests),
            ("queued_prompt_tokens", "Prompt tokens (estimated) that wait.", waiting.prompt_tokens),
            ("queued_tokens", "Prompt and output tokens that wait.", waiting.tokens),
            ("queued_bytes", "Request bodies that wait.", waiting.size),
        )
        for name, text, counter in per_task:
            yield _gauge(name, text, ("task",), [((task,), counter.get(task, 0)) for task in snapshot.tasks])
        pods = [((task.name,), len(task.prefill_pods())) for task in snapshot.tasks.values()]
        yield _gauge("prefill_endpoints", "Ready prefill pods.", ("task",), pods)
        unpaired = [((task.name,), snapshot.unpaired(task)) for task in snapshot.tasks.values()]
        text = "Ready prefill pods whose KV no ready decode pod can read, while there are some."
        yield _gauge("unpaired_prefill_endpoints", text, ("task",), unpaired)
        yield from self._prefills(snapshot)
        yield from self._decoders(snapshot)

    def _prefills(self, snapshot: Snapshot) -> Iterator[GaugeMetricFamily]:
        """What an autoscaler of prefill pods looks at."""
        backlog, oldest = self._load.prefill_backlog, self._load.oldest_prefill
        yield _gauge(
            "prefill_backlog_tokens", "Prompt tokens (estimated) in their prefill leg.", ("task",),
            [((task,), backlog.get(task, 0)) for task in snapshot.tasks],
        )  # fmt: skip
        yield _gauge(
            "prefill_oldest_seconds", "Age of the oldest prefill leg under way.", ("task",),
            [((task,), oldest(task)) for task in snapshot.tasks],
        )  # fmt: skip

    def _decoders(self, snapshot: Snapshot) -> Iterator[GaugeMetricFamily]:
        pools = snapshot.pools.items()
        reserved, queued = self._admission.reserved, self._admission.queued_tokens
        yield _gauge(
            "decode_endpoints", "Ready decode pods.", ("decoder",), [((name,), len(pool)) for name, pool in pools]
        )
        yield _gauge(
            "decode_kv_capacity_tokens", "KV tokens that the ready decode pods hold.", ("decoder",),
            [((name,), sum(pod.capacity for pod in pool)) for name, pool in pools],
        )  # fmt: skip
        yield _gauge(
            "decode_kv_reserved_tokens", "KV tokens that this replica has reserved there.", ("decoder",),
            [((name,), sum(reserved.get(pod.uid, 0) for pod in pool)) for name, pool in pools],
        )  # fmt: skip
        others = self._admission.others
        yield _gauge(
            "decode_kv_others_tokens", "KV tokens there of requests of other routers, by the engines' figures.",
            ("decoder",), [((name,), sum(others.get(pod.uid, 0) for pod in pool)) for name, pool in pools],
        )  # fmt: skip
        yield _gauge(
            "decode_queued_tokens", "KV tokens that requests wait for there.", ("decoder",),
            [((name,), queued.get(name, 0)) for name, _ in pools],
        )  # fmt: skip


def _gauge(
    name: str, text: str, labels: tuple[str, ...], samples: Iterable[tuple[tuple[str, ...], float]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(PREFIX + name, text, labels=labels)
    for values, value in samples:
        family.add_metric(list(values), value)
    return family
