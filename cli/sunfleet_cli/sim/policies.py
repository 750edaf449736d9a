"""Who decides the counts of a model: the operator's own policy, and what it is compared with.

Each policy is called with the model once per interval and answers with counts by group: tasks and pools.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sunfleet_api.scaling import Autoscaling, Behavior
from sunfleet_cli.sim.model import Model
from sunfleet_cli.sim.pods import Group
from sunfleet_cli.sim.trace import Request
from sunfleet_operator.autoscale import behavior
from sunfleet_operator.autoscale.behavior import History
from sunfleet_operator.autoscale.fleet import Fleet, decide
from sunfleet_operator.autoscale.member import Member
from sunfleet_operator.autoscale.state import Pods, State

GPU = "nvidia.com/gpu"
Counts = Mapping[str, int]
Policy = Callable[[Model], Counts]


@dataclass
class Ours:
    """The policy of the operator, line by line the same code, with the figures that Prometheus would have."""

    tasks: Autoscaling
    pools: Autoscaling
    budget: int | None = None
    _states: dict[str, State] = field(default_factory=dict)

    def __call__(self, model: Model) -> Counts:
        counts: dict[str, int] = {}
        share = None if self.budget is None else self.budget // len(model.pools)
        for name, pool in model.pools.items():
            members = {
                task: Member(self.tasks, _pods(model, model.prefill[task]), model.prefill_signals(task))
                for task in pool.tasks
            }
            members[name] = Member(self.pools, _pods(model, pool.group), model.decode_signals(name))
            fleet = Fleet(name, members, {} if share is None else {GPU: share})
            outcome = decide(fleet, self._states, model.now)
            self._states.update(outcome.states)
            counts |= {key: decision.replicas for key, decision in outcome.decisions.items()}
        return counts


def _pods(model: Model, group: Group) -> Pods:
    return Pods(
        group.wanted,
        ready=len(group.serving(model.now)),
        live=group.wanted,
        terminating=group.draining,
        each={GPU: model.costs.gpus_per_pod},
        startup_seconds=group.startup,
    )


@dataclass
class Targets:
    """As an HPA with fixed targets does: so many requests per prefill pod, so much KV per decode pod, by the rules of
    its controller. ``zero_after`` seconds without work also takes the last prefill pod, as KEDA's cooldown does."""

    requests_per_pod: float
    kv_percent: int = 80
    most: int = 32
    zero_after: float | None = None
    behavior: Behavior = field(default_factory=Behavior)
    _histories: dict[str, History] = field(default_factory=dict)
    _active: dict[str, float] = field(default_factory=dict)

    def __call__(self, model: Model) -> Counts:
        counts: dict[str, int] = {}
        for task, group in model.prefill.items():
            waiting = len(model.totals[task].legs)
            counts[task] = self._with_zero(model, task, self._count(model, group, waiting / self.requests_per_pod))
        for name, pool in model.pools.items():
            found = model.decode_signals(name)
            used = (found.reserved or 0) + (found.queued or 0)
            counts[name] = self._count(model, pool.group, used / (model.costs.kv_tokens * self.kv_percent / 100))
        return counts

    def _count(self, model: Model, group: Group, exact: float) -> int:
        present, now = group.wanted, model.now
        history = self._histories.get(group.key, History())
        raw = present if behavior.within_tolerance(exact, present, self.behavior) else math.ceil(exact)
        wanted = min(max(raw, 1), self.most)
        steady = behavior.stabilized(wanted, present, self.behavior, history, now)
        count = behavior.limited(steady, present, self.behavior, history, now)
        history = behavior.scaled(behavior.recommended(history, wanted, now), present, count, now)
        self._histories[group.key] = history
        return count

    def _with_zero(self, model: Model, task: str, count: int) -> int:
        if self.zero_after is None:
            return count
        if model.totals[task].in_flight or task not in self._active:
            self._active[task] = model.now
        idle = model.now - self._active[task]
        return 0 if idle >= self.zero_after else max(1, count)


class Oracle:
    """Knows the whole trace: the counts that the coming minutes need, decided a start-up ahead, and never too late. One
    pod of each kind stays, as ``minReplicas`` asks of the others."""

    def __init__(self, requests: Sequence[Request], *, bin_seconds: float = 15.0, headroom: float = 0.8) -> None:
        self._bin, self._headroom, self._requests = bin_seconds, headroom, requests
        self._work: dict[str, list[float]] = {}
        self._kv: dict[str, list[float]] = {}

    def __call__(self, model: Model) -> Counts:
        if not self._work:
            self._learn(model)
        counts: dict[str, int] = {}
        for task, group in model.prefill.items():
            busy = self._most(self._work[task], model.now, group.startup)
            counts[task] = max(1, math.ceil(busy / self._headroom))
        for name, pool in model.pools.items():
            held = self._most(self._kv[name], model.now, pool.group.startup)
            counts[name] = max(1, math.ceil(held / model.costs.kv_tokens / self._headroom))
        return counts

    def _learn(self, model: Model) -> None:
        costs, bins = model.costs, int(self._requests[-1].at / self._bin) + 200 if self._requests else 1
        self._work = {task: [0.0] * bins for task in model.prefill}
        self._kv = {name: [0.0] * bins for name in model.pools}
        pool_of = {task: name for name, pool in model.pools.items() for task in pool.tasks}
        for one in self._requests:
            begin = int(one.at / self._bin)
            self._work[one.task][begin] += costs.prefill(one.prompt) / self._bin
            spent = costs.prefill(one.prompt) + one.output * costs.per_token(60)
            for number in range(begin, min(bins, begin + math.ceil(spent / self._bin) + 1)):
                overlap = min(one.at + spent, (number + 1) * self._bin) - max(one.at, number * self._bin)
                self._kv[pool_of[one.task]][number] += max(0.0, overlap) / self._bin * (one.prompt + one.output)

    def _most(self, series: Sequence[float], now: float, ahead: float) -> float:
        first = int(now / self._bin)
        return max(series[first : first + math.ceil(ahead / self._bin) + 2], default=0.0)
