"""A trace through a model under a policy, and what came of it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate

from sunfleet_cli.sim.costs import Costs
from sunfleet_cli.sim.model import Model
from sunfleet_cli.sim.pods import Job
from sunfleet_cli.sim.policies import Policy
from sunfleet_cli.sim.trace import Request

INTERVAL_SECONDS = 15.0
# After the last request: so long the model may take to finish what it began.
_PATIENCE_SECONDS = 3600.0


@dataclass(frozen=True)
class Slo:
    """A request is in time when its first token comes within ``ttft`` seconds and the others follow within ``tpot``."""

    ttft: float = 2.0
    tpot: float = 0.05


@dataclass(frozen=True)
class Moment:
    """One interval: pods wanted by group, GPUs held, requests that wait for a pod or its turn, and nine tenths of the
    times to a first token that came within it (seconds; ``None`` when none came)."""

    at: float
    replicas: Mapping[str, int]
    gpus: int
    waiting: int
    ttft: float | None = None


@dataclass(frozen=True)
class Outcome:
    """``gpu_hours`` over the trace; times in seconds; ``attained`` is the share of requests within the SLO; ``pools``:
    which groups decode."""

    requests: int
    finished: int
    gpu_hours: float
    peak_gpus: int
    attained: float
    ttft: Mapping[str, float]
    tpot: Mapping[str, float]
    moments: tuple[Moment, ...]
    pools: tuple[str, ...] = ()


def one_pool(requests: Sequence[Request]) -> dict[str, list[str]]:
    """SUN: all tasks on one decode pool."""
    return {"decode": sorted({one.task for one in requests})}


def pool_each(requests: Sequence[Request]) -> dict[str, list[str]]:
    """Disaggregated serving without SUN: each model has decode pods of its own."""
    return {f"decode {task}": [task] for task in sorted({one.task for one in requests})}


def replay(
    requests: Sequence[Request],
    costs: Costs,
    topology: Mapping[str, Sequence[str]],
    policy: Policy,
    slo: Slo,
    *,
    start: Callable[[Model], None] | None = None,
    warm_up: float = 0.0,
) -> Outcome:
    """Everything from the first request to the last token. The fleet begins with one pod each, unless ``start``. What
    happens in the first ``warm_up`` seconds is not judged: a fleet that has just begun knows neither its engines nor
    its traffic."""
    model = Model(costs, topology)
    (start or _one_each)(model)
    for one in requests:
        model.at(one.at, partial(model.arrive, one))
    end = requests[-1].at
    moments: list[Moment] = []
    now = 0.0
    while now <= end or (not model.idle and now < end + _PATIENCE_SECONDS):
        model.run_until(now)
        _scale(model, policy(model))
        if warm_up <= now <= end:
            moments.append(_moment(model))
        now += INTERVAL_SECONDS
    return _outcome(model, moments, slo, (warm_up, end))


def gpu_hours(moments: Sequence[Moment]) -> list[float]:
    """What was paid for until each moment."""
    return [round(total * INTERVAL_SECONDS / 3600, 3) for total in accumulate(moment.gpus for moment in moments)]


def _one_each(model: Model) -> None:
    for group in (*model.prefill.values(), *(pool.group for pool in model.pools.values())):
        model.ready_now(group, 1)


def _scale(model: Model, counts: Mapping[str, int]) -> None:
    groups = {**model.prefill, **{name: pool.group for name, pool in model.pools.items()}}
    for key, count in counts.items():
        if count != groups[key].wanted:
            model.scale(groups[key], count)


def _moment(model: Model) -> Moment:
    groups = [*model.prefill.values(), *(pool.group for pool in model.pools.values())]
    waiting = sum(1 for job in model.open_jobs() if job.first_token is None)
    gpus = sum(len(group.pods) for group in groups) * model.costs.gpus_per_pod
    return Moment(model.now, {group.key: group.wanted for group in groups}, gpus, waiting)


def _outcome(model: Model, moments: Sequence[Moment], slo: Slo, judged: tuple[float, float]) -> Outcome:
    jobs = [job for job in model.jobs if job.request.at >= judged[0]]
    served = [job for job in jobs if job.first_token is not None]
    ttft = sorted((job.first_token or 0.0) - job.request.at for job in served)
    tpot = sorted(job.per_token for job in served)
    good = sum(1 for job in served if _in_time(job.first_token, job.request.at, job.per_token, slo))
    groups = [*model.prefill.values(), *(pool.group for pool in model.pools.values())]
    pod_seconds = sum(group.pod_seconds(*judged) for group in groups)
    return Outcome(
        requests=len(jobs),
        finished=sum(1 for job in jobs if job.done is not None and job.done <= model.now),
        gpu_hours=pod_seconds * model.costs.gpus_per_pod / 3600,
        peak_gpus=max((moment.gpus for moment in moments), default=0),
        attained=good / len(jobs) if jobs else 1.0,
        ttft=_percentiles(ttft),
        tpot=_percentiles(tpot),
        moments=tuple(_with_ttft(moments, served)),
        pools=tuple(model.pools),
    )


def _with_ttft(moments: Sequence[Moment], served: Sequence[Job]) -> Iterator[Moment]:
    """Each first token belongs to the interval that ends with the moment after it."""
    came: defaultdict[int, list[float]] = defaultdict(list)
    for job in served:
        first = job.first_token or 0.0
        came[math.ceil(first / INTERVAL_SECONDS)].append(first - job.request.at)
    for moment in moments:
        found = sorted(came[round(moment.at / INTERVAL_SECONDS)])
        yield replace(moment, ttft=_percentiles(found)["p90"]) if found else moment


def _in_time(first: float | None, at: float, per_token: float, slo: Slo) -> bool:
    return first is not None and first - at <= slo.ttft and per_token <= slo.tpot


def _percentiles(ordered: Sequence[float]) -> dict[str, float]:
    if not ordered:
        return {}
    return {f"p{percent}": ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] for percent in (50, 90, 99)}
