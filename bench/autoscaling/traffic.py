"""What is replayed: three kinds of multi-model traffic, one fleet's costs, one SLO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sunfleet_cli.sim.costs import DEFAULT
from sunfleet_cli.sim.replay import Slo
from sunfleet_cli.sim.trace import Shape

BURSTS = Shape(
    tasks=12, zipf=1.0, rate=8, seconds=3600, prompt_tokens=1500, burst=4, burst_seconds=300, calm_seconds=600
)
# What it is -> its shape.
KINDS: Mapping[str, Shape] = {
    "bursts of 4 times the quiet rate, 300 s on average, 600 s apart": BURSTS,
    "clusters: Gamma-distributed gaps, variation 2": replace(BURSTS, pattern="clusters"),
    "waves of 1800 s by 80 % of the mean, each task at its own time": replace(BURSTS, pattern="waves"),
}
SEEDS = (1, 2, 3, 4)
# The first minutes are not judged: nobody knows the fleet then, and each policy begins with one pod of each kind.
WARM_UP_SECONDS = 600.0
# Slower than the default, so that the popular tasks need several pods.
COSTS = DEFAULT.model_copy(
    update={"prefill_tokens_per_second": 4000.0, "kv_tokens": 150_000, "prefill_startup_seconds": 30.0,
            "decode_startup_seconds": 30.0, "source": "assumed: 4,000 prompt tokens/s a pod, 30 s to Ready"}
)  # fmt: skip
SLO = Slo(ttft=2.0, tpot=0.05)
