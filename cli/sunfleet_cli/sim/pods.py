"""Pods of the model and the groups that scale: what starts, works, drains and is paid for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from sunfleet_cli.sim.trace import Request


@dataclass(eq=False)
class Job:
    """A request on its way. Times are ``None`` until they are known."""

    request: Request
    prefill_begun: float | None = None
    first_token: float | None = None
    done: float | None = None
    per_token: float = 0.0

    @property
    def kv_tokens(self) -> int:
        return self.request.prompt + self.request.output


@dataclass(eq=False)
class Pod:
    """``born`` when it was decided, Ready at ``ready_at``, paid for until ``gone``."""

    born: float
    ready_at: float
    draining: bool = False
    gone: float | None = None
    queue: deque[Job] = field(default_factory=deque)  # prefill: the first one is being computed
    prompt_tokens: int = 0
    reserved: int = 0  # decode: KV tokens
    streams: int = 0

    @property
    def work(self) -> int:
        return len(self.queue) + self.streams

    def serves(self, now: float) -> bool:
        return not self.draining and self.ready_at <= now


@dataclass(eq=False)
class Group:
    """The pods of one task's prefill, or of one decode pool."""

    key: str
    startup: float
    pods: list[Pod] = field(default_factory=list)
    gone: list[Pod] = field(default_factory=list)

    @property
    def wanted(self) -> int:
        return sum(1 for pod in self.pods if not pod.draining)

    @property
    def draining(self) -> int:
        return sum(1 for pod in self.pods if pod.draining)

    def serving(self, now: float) -> list[Pod]:
        return [pod for pod in self.pods if pod.serves(now)]

    def scale(self, count: int, now: float) -> list[Pod]:
        """Towards ``count``; the pods that were started. Those with the least work drain, ones not Ready first."""
        started = [Pod(now, now + self.startup) for _ in range(count - self.wanted)]
        self.pods += started
        able = sorted((pod for pod in self.pods if not pod.draining), key=lambda pod: (pod.serves(now), pod.work))
        for pod in able[: max(0, self.wanted - count)]:
            pod.draining = True
            self.settle(pod, now)
        return started

    def settle(self, pod: Pod, now: float) -> None:
        """A pod that drains and has nothing left is gone."""
        if pod.draining and not pod.work and pod.gone is None:
            pod.gone = now
            self.pods.remove(pod)
            self.gone.append(pod)

    def pod_seconds(self, begin: float, end: float) -> float:
        """What was paid for between two times."""
        every: Iterable[Pod] = (*self.pods, *self.gone)
        return sum(max(0.0, min(end, pod.gone or end) - max(begin, pod.born)) for pod in every)
