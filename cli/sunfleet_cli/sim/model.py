"""The fleet: requests wait for a prefill pod and for decode room, are prefilled one after the other, and stream.

What is left out: batching of prompts, KV that grows only as it is written (the whole answer is reserved, as the router
does), and a stream's pace changes (it keeps the one of the moment in which it began).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from sunfleet_cli.sim.costs import Costs
from sunfleet_cli.sim.meter import Meter, Totals, decode_signals
from sunfleet_cli.sim.pods import Group, Job, Pod
from sunfleet_cli.sim.trace import Request
from sunfleet_operator.autoscale.signals import DecodeSignals, PrefillSignals

WINDOW_SECONDS = 60.0


@dataclass(eq=False)
class Pool:
    """One decode pool, the tasks that share it, and the requests that wait for its room."""

    group: Group
    tasks: tuple[str, ...]
    line: deque[Job] = field(default_factory=deque)


class Model:
    """State and events. ``topology``: decode pool -> its tasks."""

    def __init__(self, costs: Costs, topology: Mapping[str, Sequence[str]]) -> None:
        self.costs, self.now = costs, 0.0
        self.pools = {
            name: Pool(Group(name, costs.decode_startup_seconds), tuple(tasks)) for name, tasks in topology.items()
        }
        self.prefill = {
            task: Group(task, costs.prefill_startup_seconds) for pool in self.pools.values() for task in pool.tasks
        }
        self.totals = {task: Totals() for task in self.prefill}
        self.jobs: list[Job] = []
        self._open: list[Job] = []
        self._pool_of = {task: pool for pool in self.pools.values() for task in pool.tasks}
        self._held: dict[str, deque[Job]] = {task: deque() for task in self.prefill}
        self._meters = {task: Meter(WINDOW_SECONDS) for task in self.prefill}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._finish: dict[Job, Callable[[], None]] = {}  # what follows the prefill of a job

    def open_jobs(self) -> Iterable[Job]:
        """Those that are not done at this moment, and perhaps some that are."""
        self._open = [job for job in self._open if job.done is None or job.done > self.now]
        return self._open

    # Running ----------------------------------------------------------------------------------------------------------

    def at(self, time: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._numbers), event))

    def run_until(self, end: float) -> None:
        while self._events and self._events[0][0] <= end:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = end

    @property
    def idle(self) -> bool:
        return not self._events

    def scale(self, group: Group, replicas: int) -> None:
        """Start or drain pods; what waited goes on when one is Ready."""
        for pod in group.scale(replicas, self.now):
            self.at(pod.ready_at, self._ready)

    def ready_now(self, group: Group, pods: int) -> None:
        """Pods that were there before the first request."""
        group.pods += [Pod(self.now, self.now) for _ in range(pods)]

    def _ready(self) -> None:
        for task, held in self._held.items():
            while held and self.prefill[task].serving(self.now):
                self._join(held.popleft())
        for pool in self.pools.values():
            self._place(pool)

    # A request --------------------------------------------------------------------------------------------------------

    def arrive(self, request: Request) -> None:
        job = Job(request)
        self.jobs.append(job)
        self._open.append(job)
        self.totals[request.task].in_flight += 1
        if self.prefill[request.task].serving(self.now):
            self._join(job)
        else:
            self._held[request.task].append(job)

    def _join(self, job: Job) -> None:
        pool = self._pool_of[job.request.task]
        pool.line.append(job)
        self._place(pool)

    def _place(self, pool: Pool) -> None:
        """First come, first served; one that no pod could ever hold takes a whole pod."""
        while pool.line:
            task = pool.line[0].request.task
            able = self._able(task)
            if not able:  # its last pod went while it waited for room
                self._held[task].append(pool.line.popleft())
                continue
            need = min(pool.line[0].kv_tokens, self.costs.kv_tokens)
            roomy = [pod for pod in pool.group.serving(self.now) if pod.reserved + need <= self.costs.kv_tokens]
            if not roomy:
                return
            seat, job = min(roomy, key=lambda pod: pod.reserved), pool.line.popleft()
            seat.reserved += need
            seat.streams += 1
            self._prefill(job, min(able, key=lambda pod: pod.prompt_tokens), pool, seat, need)

    def _able(self, task: str) -> list[Pod]:
        """Pods that can prefill for a task; ones that drain only where there is no other."""
        group = self.prefill[task]
        return group.serving(self.now) or [pod for pod in group.pods if pod.ready_at <= self.now]

    def _prefill(self, job: Job, pod: Pod, pool: Pool, seat: Pod, need: int) -> None:
        request, totals = job.request, self.totals[job.request.task]
        totals.backlog += request.prompt
        totals.legs[job] = job.prefill_begun = self.now
        pod.prompt_tokens += request.prompt
        pod.queue.append(job)

        def finished() -> None:
            self._prefilled(job, pod, self.prefill[request.task])
            self._decode(job, pool, seat, need)

        self._finish[job] = finished
        if len(pod.queue) == 1:
            self._compute(pod)

    def _compute(self, pod: Pod) -> None:
        job = pod.queue[0]
        self.at(self.now + self.costs.prefill(job.request.prompt), self._finish.pop(job))

    def _prefilled(self, job: Job, pod: Pod, group: Group) -> None:
        totals, request = self.totals[job.request.task], job.request
        pod.queue.popleft()
        pod.prompt_tokens -= request.prompt
        begun = totals.legs.pop(job)
        totals.backlog -= request.prompt
        totals.tokens += request.prompt
        totals.squares += request.prompt**2
        totals.prompts += 1
        totals.prefill_seconds += self.now - begun
        if pod.queue:
            self._compute(pod)
        group.settle(pod, self.now)

    def _decode(self, job: Job, pool: Pool, seat: Pod, need: int) -> None:
        job.first_token = self.now + self.costs.transfer_seconds
        job.per_token = self.costs.per_token(seat.streams)
        job.done = job.first_token + (job.request.output - 1) * job.per_token

        def ended() -> None:
            totals = self.totals[job.request.task]
            totals.in_flight -= 1
            totals.ended += 1
            self._leave(pool, seat, need)

        self.at(job.done, ended)

    def _leave(self, pool: Pool, seat: Pod, need: int) -> None:
        seat.reserved -= need
        seat.streams -= 1
        pool.group.settle(seat, self.now)
        self._place(pool)

    # Metrics ----------------------------------------------------------------------------------------------------------

    def prefill_signals(self, task: str) -> PrefillSignals:
        return self._meters[task].read(self.totals[task], self.now)

    def decode_signals(self, name: str) -> DecodeSignals:
        pool = self.pools[name]
        reserved = sum(pod.reserved for pod in pool.group.pods)
        queued = sum(job.kv_tokens for job in pool.line)
        return decode_signals(reserved, queued, self.costs.kv_tokens, len(pool.group.serving(self.now)))
