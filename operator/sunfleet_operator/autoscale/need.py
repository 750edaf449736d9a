"""How many pods would do, as a number with a fraction. Pure.

Prefill: a pod that makes ``c`` tokens a second serves one prompt in ``s`` seconds; the wait behind random arrivals is
``s * load / (1 - load)``. To keep that within ``queueSeconds`` a pod may be loaded to ``queue / (queue + s)``. Prompts
arrive as fast as they are served and as the backlog grows. What has piled up beyond the prompts that are being computed
is to be gone within ``queueSeconds``, or within the time that a new pod takes to start, since nothing helps sooner.

Decode: KV tokens promised and wanted, over what a pod holds, filled to ``kvUtilizationPercent``. Neither looks at the
other's queue: a prompt that waits for decode room is no prefill work, and the other way round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sunfleet_api.scaling import Targets

DEFAULT_QUEUE_SECONDS: Final = 2
DEFAULT_KV_UTILIZATION_PERCENT: Final = 80


@dataclass(frozen=True)
class PrefillLoad:
    """Checked figures of one task. ``per_pod`` is ``None`` until it was learnt."""

    token_rate: float
    prompt_rate: float
    backlog: float
    oldest: float
    per_pod: float | None
    growth: float = 0.0  # of the backlog, tokens a second
    startup: float = 0.0  # seconds that a new pod takes to be Ready


def target_load(load: PrefillLoad, queue_seconds: float) -> float:
    """Share of its time that a pod may be busy: 1 while prompts take no time, less the longer they take."""
    if not load.per_pod or not load.prompt_rate:
        return 1.0
    service = load.token_rate / load.prompt_rate / load.per_pod  # seconds of a prompt
    return queue_seconds / (queue_seconds + service)


def prefill_need(load: PrefillLoad, targets: Targets, *, ready: int, present: int) -> float:
    """Pods for the prompts of one task; ``present`` are the wanted ones, of which ``ready`` can work."""
    queue = float(targets.queue_seconds or DEFAULT_QUEUE_SECONDS)
    late = load.oldest > queue and ready >= present  # pods on their way are the answer already
    if not load.per_pod:
        # Nothing is known of these pods yet: one more while prompts wait too long, none less while any work is there.
        idle = not (load.token_rate or load.backlog)
        return 0.0 if idle else float(present + late)
    arriving = load.token_rate + max(0.0, load.growth)
    busy = arriving / load.per_pod / target_load(load, queue)
    in_hand = ready * load.token_rate / load.prompt_rate if load.prompt_rate else 0.0  # one prompt a pod is no queue
    waiting = max(0.0, load.backlog - in_hand)
    need = busy + waiting / (max(queue, load.startup) * load.per_pod)
    return max(need, present + 1.0) if late else need


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
