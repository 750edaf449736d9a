"""The table and the bars, from the cells' results. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sunfleet_tuner.intervals import paired, wilson
from tuner.cells import ROWS, Measurement, Method, Plan, Row, Training, cells

Results = Mapping[str, Mapping[str, Any]]  # cell's name -> what it found

_SURE: Final = 0.05
_ENOUGH_STEPS: Final = 20
_NOISE: Final = 0.1


@dataclass(frozen=True)
class Bar:
    """One claim. ``held`` is None when the results do not decide it."""

    claim: str
    held: bool | None
    seen: str

    def __str__(self) -> str:
        word = {True: "held", False: "MISSED", None: "not shown"}[self.held]
        return f"- {word}: {self.claim} ({self.seen})"


def report(plan: Plan, results: Results) -> str:
    """Markdown: accuracy with 95 % intervals, cost, bars. Cells without a result are left out."""
    tasks = list(plan.tasks)
    lines = [f"| prefill -> decode | {' | '.join(tasks)} |", "|---" * (len(tasks) + 1) + "|"]
    measured = [row for row in ROWS if any(rights(plan, results, task, row) for task in tasks)]
    for row in measured:
        shares = (_share(rights(plan, results, task, row)) for task in tasks)
        lines.append(f"| {row.label} | {' | '.join(shares)} |")
    lines += ["", f"| cost, relative to Full-FT | {' | '.join(tasks)} |", "|---" * (len(tasks) + 1) + "|"]
    for method in plan.methods:
        lines.append(f"| {method} | {' | '.join(_cost(plan, results, task, method) for task in tasks)} |")
    seeds = ", ".join(f"{task} {len(whole_seeds(plan, results, task))} of {len(plan.seeds)}" for task in tasks)
    lines += [
        "",
        "CPU seconds a step; peak memory in GiB above that of a process without a model; seeds are averaged. "
        f"Seeds that were measured whole: {seeds}.",
        "",
    ]
    return "\n".join([*lines, *map(str, bars(plan, results))])


def bars(plan: Plan, results: Results) -> Iterator[Bar]:
    """What the bench has to show, task by task."""
    row = {one.label: one for one in ROWS}
    for task in plan.tasks:

        def pair(better: str, worse: str, task: str = task) -> tuple[Sequence[bool], Sequence[bool]]:
            return rights(plan, results, task, row[better]), rights(plan, results, task, row[worse])

        for label in ("SUN full", "SUN LoRA"):
            yield not_below(f"{task}: {label} is not below Full-FT", *pair(label, "Full-FT"))
        yield above(f"{task}: naive sharing is clearly below Full-FT", *pair("Full-FT", "naive sharing"))
        four, three = ("QSUN, 4-bit decoder", "QSUN, 3-bit decoder")
        yield not_below(
            f"{task}: {four} is not below SUN not re-tuned", *pair(four, f"SUN full, {four[6:]}, not re-tuned")
        )
        yield above(f"{task}: {three} is above SUN not re-tuned", *pair(three, f"SUN full, {three[6:]}, not re-tuned"))
        for method, time, memory in (("full", 1.15, 0.0), ("lora", 1.0, 0.7)):
            yield from _cost_bars(plan, results, task, method, time, memory)


def rights(plan: Plan, results: Results, task: str, row: Row) -> list[bool]:
    """Every question of every whole seed, in order."""
    names = (Measurement(task, seed, row, plan.tasks[task]).name for seed in whole_seeds(plan, results, task))
    return [right for name in names if name in results for right in results[name]["right"]]


def whole_seeds(plan: Plan, results: Results, task: str) -> list[int]:
    """Seeds of which every row was measured, so that all rows answered the same questions."""
    wanted = [cell for cell in cells(plan) if isinstance(cell, Measurement) and cell.task == task]
    return [seed for seed in plan.seeds if all(cell.name in results for cell in wanted if cell.seed == seed)]


def not_below(claim: str, ours: Sequence[bool], theirs: Sequence[bool]) -> Bar:
    """Missed when the others get more right, beyond what chance does to paired questions.

    Where neither gets anything right, nothing was learnt and nothing is shown.
    """
    if not ours or not theirs:
        return Bar(claim, None, "not measured")
    p = _chance(ours, theirs)
    held = (sum(ours) >= sum(theirs) or p >= _SURE) if any(ours) or any(theirs) else None
    return Bar(claim, held, f"{sum(ours)} against {sum(theirs)} right, p = {p:.3f}")


def above(claim: str, ours: Sequence[bool], theirs: Sequence[bool]) -> Bar:
    """Held when ours get more right beyond chance, missed when theirs do."""
    if not ours or not theirs:
        return Bar(claim, None, "not measured")
    p = _chance(ours, theirs)
    more = sum(ours) > sum(theirs)
    return Bar(claim, more if p < _SURE else None, f"{sum(ours)} against {sum(theirs)} right, p = {p:.3f}")


def _chance(ours: Sequence[bool], theirs: Sequence[bool]) -> float:
    both = list(zip(ours, theirs, strict=True))
    return paired(both.count((True, False)), both.count((False, True)))


def _cost_bars(
    plan: Plan, results: Results, task: str, method: str, most_time: float, most_memory: float
) -> Iterator[Bar]:
    ours, theirs = (_costs(plan, results, task, name) for name in (method, "ft"))
    if not ours or not theirs:
        return
    few = ours["steps"] < _ENOUGH_STEPS
    time_noise, noise = (math.inf, _NOISE) if few else (0.0, 0.0)
    ratio = ours["cpu_seconds_per_step"] / theirs["cpu_seconds_per_step"]
    claim = f"{task}: a step of {method} takes at most {most_time} of Full-FT's"
    yield Bar(claim, at_most(ratio, most_time, time_noise), f"{ratio:.2f}")
    memory = ours["peak_gib"] / theirs["peak_gib"]
    if most_memory:
        claim = f"{task}: {method} needs at most {most_memory} of Full-FT's memory"
        yield Bar(claim, at_most(memory, most_memory, noise), f"{memory:.2f}")
    else:
        room = theirs["peak_gib"] + theirs["weights_gib"]
        claim = f"{task}: {method} needs at most Full-FT's memory and the decoder's weights"
        held = at_most(ours["peak_gib"], room, noise)
        yield Bar(claim, held, f"{ours['peak_gib']:.2f} of {room:.2f} GiB")


def at_most(found: float, bound: float, noise: float) -> bool | None:
    """Whether a cost keeps its bound; what lies above it by no more than the share ``noise`` decides nothing.

    A few steps beside other work say nothing of time: waiting threads burn CPU, too. Memory is steadier.
    """
    if found <= bound:
        return True
    return None if found <= bound * (1 + noise) else False


def _costs(plan: Plan, results: Results, task: str, method: str) -> dict[str, float]:
    """Figures of a method, averaged over seeds; empty when none was trained."""
    names = [one.name for one in cells(plan) if isinstance(one, Training) and (one.task, one.method) == (task, method)]
    found = [results[name] for name in names if name in results]
    keys = ("cpu_seconds_per_step", "peak_gib", "weights_gib", "steps")
    return {key: sum(one[key] for one in found) / len(found) for key in keys} if found else {}


def _cost(plan: Plan, results: Results, task: str, method: Method) -> str:
    ours, theirs = _costs(plan, results, task, method), _costs(plan, results, task, "ft")
    if not ours or not theirs:
        return "-"
    time, memory = (ours[key] / theirs[key] for key in ("cpu_seconds_per_step", "peak_gib"))
    return (
        f"{ours['steps']:.0f} steps of {ours['cpu_seconds_per_step']:.2f} s ({time:.2f}), "
        f"{ours['peak_gib']:.2f} GiB ({memory:.2f})"
    )


def _share(right: Sequence[bool]) -> str:
    if not right:
        return "-"
    low, high = wilson(sum(right), len(right))
    return f"{100 * sum(right) / len(right):.1f} % ({100 * low:.0f}-{100 * high:.0f})"
