"""GPU hours and SLO attainment of the scaler against fixed targets and an oracle, on traffic of many models.

    make bench-autoscaling            # prints the tables
    make bench-autoscaling KEEP=1     # and keeps them, dated, in bench/results/
    make bench-autoscaling SEEDS=21,22 ONLY=Sunfleet    # other traffic, one policy beside the oracles

Pure simulation: seeded, the same on every machine, a few minutes. The policies differ only in what they decide from;
all follow the same ``behavior`` unless their name says otherwise: HPA's defaults but for a scale-down window as long as
a pod takes to start: one given up too soon costs that time, one kept in vain costs the window.
"""

from __future__ import annotations

import argparse
import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from autoscaling.oracle import Make, Point, cheapest, oracles
from autoscaling.traffic import BURSTS, COSTS, KINDS, SEEDS, SLO, WARM_UP_SECONDS
from sunfleet_api.scaling import Autoscaling
from sunfleet_cli.sim.policies import Ours, Targets
from sunfleet_cli.sim.replay import Outcome, one_pool, replay
from sunfleet_cli.sim.trace import Request, Shape, made

RESULTS = Path(__file__).parents[1] / "results"
DOWN = {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 30}}, "maxReplicas": 64}


@dataclass(frozen=True)
class Line:
    """One policy over all seeds of a kind of traffic, averaged. ``oracle``: what it is compared with."""

    name: str
    gpu_hours: float
    peak: float
    attained: float
    ttft_p99: float
    oracle: Point | None


def policies() -> Mapping[str, Make]:
    plain = Autoscaling.model_validate(DOWN)
    slow = Autoscaling(max_replicas=64)
    brisk = Autoscaling.model_validate({**DOWN, "targets": {"queueSeconds": 1}})
    trend = Autoscaling.model_validate({**DOWN, "prediction": "Trend"})
    return {
        "Sunfleet": lambda _: Ours(plain, plain),
        "Sunfleet, queueSeconds 1": lambda _: Ours(brisk, brisk),
        "Sunfleet, HPA's window of 300 s": lambda _: Ours(slow, slow),
        "Sunfleet, prediction: Trend": lambda _: Ours(trend, trend),
        "HPA, 2 requests a pod": lambda _: Targets(2, most=64, behavior=plain.behavior),
        "HPA, 8 requests a pod": lambda _: Targets(8, most=64, behavior=plain.behavior),
        "KEDA, 4 a pod, to zero after 300 s": lambda _: Targets(4, most=64, zero_after=300, behavior=plain.behavior),
    }


def run(shape: Shape, seeds: Sequence[int], only: str | None = None) -> list[Line]:
    """All policies, or the one of that name."""
    traces = [made(shape, seed) for seed in seeds]
    points = [_point(_replayed(traces, make)) for make in oracles()]
    asked = {name: make for name, make in policies().items() if only in {None, name}}
    return [_line(name, _replayed(traces, make), points) for name, make in asked.items()]


def _replayed(traces: Sequence[Sequence[Request]], make: Make) -> list[Outcome]:
    return [replay(trace, COSTS, one_pool(trace), make(trace), SLO, warm_up=WARM_UP_SECONDS) for trace in traces]


def _point(found: Sequence[Outcome]) -> Point:
    return Point(mean(one.gpu_hours for one in found), mean(one.attained for one in found))


def _line(name: str, found: Sequence[Outcome], points: Sequence[Point]) -> Line:
    cost, attained = _point(found).gpu_hours, _point(found).attained
    peak, ttft = mean(one.peak_gpus for one in found), mean(one.ttft["p99"] for one in found)
    return Line(name, cost, peak, attained, ttft, cheapest(points, attained))


def table(lines: Sequence[Line]) -> str:
    columns = ("policy", "GPU hours", "in SLO", "cheapest oracle that attains as much", "to its GPU hours", "peak GPUs",
               "TTFT p99")  # fmt: skip
    return "\n".join([_cells(columns), "|---" * len(columns) + "|", *(_cells(_row(one)) for one in lines)])


def _cells(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _row(one: Line) -> list[str]:
    oracle, ratio = "none does", ""
    if one.oracle is not None:
        oracle = f"{one.oracle.gpu_hours:.1f} at {one.oracle.attained:.1%}"
        ratio = f"{one.gpu_hours / one.oracle.gpu_hours:.2f}"
    cost, peak = f"{one.gpu_hours:.1f}", f"{one.peak:.0f}"
    return [one.name, cost, f"{one.attained:.1%}", oracle, ratio, peak, f"{one.ttft_p99:.1f} s"]


def about(seeds: Sequence[int]) -> str:
    return (
        f"{BURSTS.tasks} tasks (Zipf {BURSTS.zipf:g}), {BURSTS.rate:g} requests/s on average for "
        f"{BURSTS.seconds / 60:.0f} minutes, of which the first {WARM_UP_SECONDS / 60:.0f} are not judged; seeds "
        f"{', '.join(map(str, seeds))}, averaged. Costs {COSTS.source}. SLO: TTFT {SLO.ttft:g} s, TPOT "
        f"{SLO.tpot * 1000:.0f} ms. Every oracle knows the trace and starts pods ahead of their need; one pod of each "
        "task and of the pool always stays, as for the others but KEDA."
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in text.split(","))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="write bench/results/DATE-autoscaling.md")
    parser.add_argument("--seeds", type=_numbers, default=SEEDS, help="of the traffic, with commas between them")
    parser.add_argument("--only", choices=policies(), help="this policy alone")
    options = parser.parse_args()
    parts = [about(options.seeds)]
    print(parts[0], flush=True)
    for kind, shape in KINDS.items():
        found = f"**{kind[0].upper()}{kind[1:]}**\n\n{table(run(shape, options.seeds, options.only))}"
        print(f"\n{found}", flush=True)
        parts.append(found)
    if options.keep:
        date = dt.datetime.now(tz=dt.UTC).date().isoformat()
        target = RESULTS / f"{date}-autoscaling.md"
        target.write_text(f"# Autoscaling, simulated, {date}\n\n`make bench-autoscaling`. " + "\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
