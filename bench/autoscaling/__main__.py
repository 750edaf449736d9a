"""GPU hours and SLO attainment of the scaler against fixed targets and an oracle, on bursty traffic of many models.

    make bench-autoscaling            # prints the table
    make bench-autoscaling KEEP=1     # and keeps it, dated, in bench/results/

Pure simulation: seeded, the same on every machine, about a minute. The policies differ only in what they decide from;
all follow the same ``behavior`` (HPA's defaults but for a scale-down window of 120 s).
"""

from __future__ import annotations

import argparse
import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sunfleet_api.scaling import Autoscaling
from sunfleet_cli.sim.costs import DEFAULT
from sunfleet_cli.sim.policies import Oracle, Ours, Policy, Targets
from sunfleet_cli.sim.replay import Outcome, Slo, one_pool, replay
from sunfleet_cli.sim.trace import Request, Shape, made

RESULTS = Path(__file__).parents[1] / "results"
SHAPE = Shape(
    tasks=12, zipf=1.0, rate=8, seconds=3600, prompt_tokens=1500, burst=4, burst_seconds=300, calm_seconds=600
)
# Slower than the default, so that the popular tasks need several pods.
COSTS = DEFAULT.model_copy(
    update={"prefill_tokens_per_second": 4000.0, "kv_tokens": 150_000, "prefill_startup_seconds": 30.0,
            "decode_startup_seconds": 30.0, "source": "assumed: 4,000 prompt tokens/s a pod, 30 s to Ready"}
)  # fmt: skip
SLO = Slo(ttft=2.0, tpot=0.05)
DOWN = {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 120}}, "maxReplicas": 64}
SEEDS = (1, 2, 3)


@dataclass(frozen=True)
class Line:
    """One policy over all seeds, averaged."""

    name: str
    gpu_hours: float
    peak: float
    attained: float
    ttft_p99: float


def policies(requests: list[Request]) -> dict[str, Callable[[], Policy]]:
    plain = Autoscaling.model_validate(DOWN)
    trend = Autoscaling.model_validate({**DOWN, "prediction": "Trend"})
    zero = Autoscaling.model_validate({**DOWN, "minReplicas": 0, "scaleToZero": {"idleSeconds": 300}})
    return {
        "oracle (knows the trace)": lambda: Oracle(requests),
        "Sunfleet": lambda: Ours(plain, plain),
        "Sunfleet, prediction: Trend": lambda: Ours(trend, trend),
        "Sunfleet, to zero after 300 s": lambda: Ours(zero, plain),
        "HPA, 2 requests a pod": lambda: Targets(2, most=64, behavior=plain.behavior),
        "HPA, 8 requests a pod": lambda: Targets(8, most=64, behavior=plain.behavior),
        "KEDA, 4 a pod, to zero after 300 s": lambda: Targets(4, most=64, zero_after=300, behavior=plain.behavior),
    }


def run() -> list[Line]:
    outcomes: dict[str, list[Outcome]] = {}
    for seed in SEEDS:
        requests = made(SHAPE, seed)
        for name, policy in policies(requests).items():
            outcomes.setdefault(name, []).append(replay(requests, COSTS, one_pool(requests), policy(), SLO))
    return [_line(name, found) for name, found in outcomes.items()]


def _line(name: str, found: list[Outcome]) -> Line:
    count = len(found)
    return Line(
        name,
        sum(one.gpu_hours for one in found) / count,
        sum(one.peak_gpus for one in found) / count,
        sum(one.attained for one in found) / count,
        sum(one.ttft["p99"] for one in found) / count,
    )


def table(lines: list[Line]) -> str:
    best = lines[0].gpu_hours
    rows = [
        f"| {one.name} | {one.gpu_hours:.1f} | {one.gpu_hours / best:.2f} | {one.peak:.0f} "
        f"| {one.attained:.1%} | {one.ttft_p99:.1f} s |"
        for one in lines
    ]
    head = "| policy | GPU hours | to the oracle's | peak GPUs | in SLO | TTFT p99 |\n|---|---|---|---|---|---|"
    return "\n".join([head, *rows])


def text(lines: list[Line]) -> str:
    about = (
        f"{SHAPE.tasks} tasks (Zipf {SHAPE.zipf:g}), {SHAPE.rate:g} requests/s on average for {SHAPE.seconds / 60:.0f} "
        f"minutes, bursts of {SHAPE.burst:g} times the quiet rate for {SHAPE.burst_seconds:.0f} s on average; seeds "
        f"{', '.join(map(str, SEEDS))}, averaged. Costs {COSTS.source}. "
        f"SLO: TTFT {SLO.ttft:g} s, TPOT {SLO.tpot * 1000:.0f} ms."
    )
    return f"{about}\n\n{table(lines)}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="write bench/results/DATE-autoscaling.md")
    options = parser.parse_args()
    found = text(run())
    print(found)
    if options.keep:
        date = dt.datetime.now(tz=dt.UTC).date().isoformat()
        target = RESULTS / f"{date}-autoscaling.md"
        target.write_text(f"# Autoscaling, simulated, {date}\n\n`make bench-autoscaling`. {found}")


if __name__ == "__main__":
    main()
