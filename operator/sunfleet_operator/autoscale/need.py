"""How many pods would do, as a number with a fraction. Pure.

Prefill: so many pods that no more than one prompt in twenty waits longer than ``queueSeconds``. Prompts come by chance
and are not of one length, so pods must stand idle at times; how much, Sakasegawa's approximation of the queue M/M/c
says: with load ``a`` (pods that would be busy all the time), ``c`` pods and ``s`` seconds a prompt, a prompt waits with
probability ``(a/c) ** (sqrt(2(c+1)) - 1)``, and then longer than ``q`` with ``exp(-q (c-a) / s)``. Where lengths vary
less or more than M/M/c's, the wait is ``(1 + v) / 2`` times as long (Allen and Cunneen); ``v``, their squared
coefficient of variation, is learnt from the prompts that come. Many pods need less room each than one does. What has
piled up beyond the prompts that are being computed is to be gone within ``queueSeconds``, or within the time that a new
pod takes to start, since nothing helps sooner.

Prompts come as fast as they are served and as the backlog grows, both over the same time: what is served while a
backlog is worked off does not come as fast, and is no reason for more pods. Where the newer half of that time differs
from the whole by more than chance can explain, the load has changed, and the newer half counts.

Decode: KV tokens promised and wanted, over what a pod holds, filled to ``kvUtilizationPercent``. Neither looks at the
other's queue: a prompt that waits for decode room is no prefill work, and the other way round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from sunfleet_api.scaling import Targets

DEFAULT_QUEUE_SECONDS: Final = 2
DEFAULT_KV_UTILIZATION_PERCENT: Final = 80
LATE_SHARE: Final = 0.05  # of prompts, that may wait longer than queueSeconds
_SIGMAS: Final = 2.0  # a change of load that chance would make once in twenty times
_STEPS: Final = 30  # of the bisection: far below a hundredth of a pod


@dataclass(frozen=True)
class PrefillLoad:
    """Checked figures of one task. ``per_pod`` is ``None`` until it was learnt."""

    token_rate: float
    prompt_rate: float
    arriving: float
    backlog: float
    oldest: float
    per_pod: float | None
    recent: float | None = None  # ``arriving`` of the newer half of the window
    window: float = 60.0  # seconds that rates are over
    variability: float = 1.0  # of the prompts' lengths: squared coefficient of variation
    startup: float = 0.0  # seconds that a new pod takes to be Ready

    @property
    def size(self) -> float:
        """Tokens of a prompt, on average; 0 where none was served."""
        return self.token_rate / self.prompt_rate if self.prompt_rate else 0.0


def prefill_need(load: PrefillLoad, targets: Targets, *, ready: int, present: int) -> float:
    """Pods for the prompts of one task; ``present`` are the wanted ones, of which ``ready`` can work."""
    queue = float(targets.queue_seconds or DEFAULT_QUEUE_SECONDS)
    late = load.oldest > queue and ready >= present  # pods on their way are the answer already
    if not load.per_pod:
        # Nothing is known of these pods yet: one more while prompts wait too long, none less while any work is there.
        idle = not (load.token_rate or load.backlog)
        return 0.0 if idle else float(present + late)
    waiting = max(0.0, load.backlog - ready * load.size)  # one prompt a pod is no queue
    need = staffed(expected(load) / load.per_pod, load.size / load.per_pod, queue, load.variability)
    need += waiting / (max(queue, load.startup) * load.per_pod)
    return max(need, present + 1.0) if late and waiting else need


def expected(load: PrefillLoad) -> float:
    """Prompt tokens a second to be ready for. A rate of ``n`` prompts of random length, at random times, strays from
    its mean by ``sqrt((1 + variability) n)`` prompts."""
    if load.recent is None:
        return load.arriving
    half = load.window / 2
    usual = max(load.arriving, load.size / half)
    chance = math.sqrt((1 + load.variability) * usual * load.size / half)
    return load.recent if abs(load.recent - load.arriving) > _SIGMAS * chance else load.arriving


def staffed(busy: float, service: float, queue: float, variability: float = 1.0) -> float:
    """Pods so that :data:`LATE_SHARE` of prompts wait longer than ``queue`` seconds, where ``busy`` pods would be busy
    all the time and a prompt takes ``service`` seconds, which vary by ``variability``."""
    if busy <= 0 or service <= 0:
        return max(0.0, busy)
    low, high = busy, busy + 1 + 8 * math.sqrt(busy + 1)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if _late(busy, middle, service * (1 + variability) / 2, queue) > LATE_SHARE:
            low = middle
        else:
            high = middle
    return high


def _late(busy: float, pods: float, service: float, queue: float) -> float:
    """Share of prompts that wait longer than ``queue`` seconds for one of ``pods``."""
    waits: float = (busy / pods) ** (math.sqrt(2 * (pods + 1)) - 1)
    return waits * math.exp(-queue * (pods - busy) / service)


def decode_need(reserved: float, queued: float, per_pod: float, targets: Targets) -> float:
    """Pods for the KV tokens of all tasks."""
    percent = targets.kv_utilization_percent or DEFAULT_KV_UTILIZATION_PERCENT
    return (reserved + queued) / (per_pod * percent / 100)


def predicted(history: tuple[tuple[float, float], ...], now: float, ahead: float) -> float:
    """Need ``ahead`` seconds from now, if it goes on growing as it did; 0 where that cannot be told.

    ``history`` holds (time, need), about as far back: a line is fitted through them (least squares).
    """
    recent = [(at - now, need) for at, need in history]
    if len(recent) < 3 or not ahead:
        return 0.0
    mean_t = sum(at for at, _ in recent) / len(recent)
    mean_n = sum(need for _, need in recent) / len(recent)
    spread = sum((at - mean_t) ** 2 for at, _ in recent)
    if not spread:
        return 0.0
    slope = sum((at - mean_t) * (need - mean_n) for at, need in recent) / spread
    return max(0.0, mean_n + slope * (ahead - mean_t)) if slope > 0 else 0.0
