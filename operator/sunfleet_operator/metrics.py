"""The operator's own metrics. Label values are bounded: kinds, verbs, codes; names only of objects that scale."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

RECONCILES = Counter(
    "sunfleet_operator_reconciles_total", "Reconciles by kind and result (ok, error).", ["kind", "result"]
)
RECONCILE_SECONDS = Histogram(
    "sunfleet_operator_reconcile_duration_seconds",
    "Time from reading to the last write of one reconcile.",
    ["kind"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
REQUESTS = Counter(
    "sunfleet_operator_api_requests_total", "Requests to the API server by method and status code.", ["method", "code"]
)
WRITES = Counter(
    "sunfleet_operator_writes_total", "Changes of live objects by kind of object and verb.", ["kind", "verb"]
)
WATCH_EVENTS = Counter("sunfleet_operator_watch_events_total", "Watch events that reached the operator.", ["kind"])
LAST_WATCH_EVENT = Gauge(
    "sunfleet_operator_last_watch_event_timestamp_seconds", "Unix time of the last watch event of any kind."
)
QUEUE_WAITING = Gauge("sunfleet_operator_queue_waiting", "Keys that wait for a worker.")
QUEUE_RUNNING = Gauge("sunfleet_operator_queue_running", "Keys that a worker works on.")
READY = Gauge(
    "sunfleet_operator_objects_ready", "Objects by kind and status of their Ready condition.", ["kind", "status"]
)
VERIFICATIONS = Counter(
    "sunfleet_operator_verifications_total", "Checks by golden prompts: passed, mismatch or error.", ["result"]
)
for _result in ("passed", "mismatch", "error"):
    VERIFICATIONS.labels(_result)
CANARIES = Counter(
    "sunfleet_operator_canaries_total", "Canaries that came to an end: Promotable or RolledBack.", ["phase"]
)
for _phase in ("Promotable", "RolledBack"):
    CANARIES.labels(_phase)
LEADER = Gauge("sunfleet_operator_leader", "1 while this process holds the Lease, or needs none.")

SCALING_DECISIONS = Counter(
    "sunfleet_operator_scaling_decisions_total",
    "Decisions of the built-in scaler by kind and reason.",
    ["kind", "reason"],
)
SCALING_FAILURES = Counter(
    "sunfleet_operator_scaling_failures_total", "Rounds that lacked something: metrics, cluster, fault.", ["what"]
)
for _what in ("metrics", "cluster", "fault"):
    SCALING_FAILURES.labels(_what)  # there from the start as 0: no rate shows the first of a series that was not
SCALING_LAST = Gauge(
    "sunfleet_operator_scaling_last_round_timestamp_seconds",
    "Unix time of the last whole round of decisions; 0 while nothing scales.",
)
# One series for each object that scales: bounded by the fleet, and what a person wants to see over time.
SCALING_DESIRED = Gauge(
    "sunfleet_operator_scaling_desired_replicas", "Count that was decided.", ["kind", "namespace", "name"]
)
# Some sixteen for each of those objects; after a round without usable metrics none, so that an old figure does not pass
# for a new one. A round that failed leaves them: see the time of the last one.
SCALING_INPUT = Gauge(
    "sunfleet_operator_scaling_input",
    "A figure of the last decision, by its name in status.scaling.inputs.",
    ["kind", "namespace", "name", "input"],
)
