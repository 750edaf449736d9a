"""A replay as a picture: pods, queues, times to the first token and cost, one below the other over the same time."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sunfleet_cli.sim.replay import Outcome, gpu_hours

_SHOWN: Final = 6  # groups with a line of their own: more cannot be told apart
_NOTHING: Final = float("nan")  # a hole in a line


def draw(path: Path, title: str, outcome: Outcome) -> None:
    """Write the picture in the format of the file's ending; ``ValueError`` for one that is not known."""
    figure = Figure(figsize=(10, 9), layout="constrained")
    pods, waiting, ttft, cost = figure.subplots(4, 1, sharex=True)
    minutes = [moment.at / 60 for moment in outcome.moments]
    for name, values in groups(outcome):
        pods.step(minutes, values, where="post", label=name)
    pods.legend(loc="upper right", fontsize="small")
    waiting.step(minutes, [moment.waiting for moment in outcome.moments], where="post")
    ttft.plot(minutes, [_NOTHING if moment.ttft is None else moment.ttft for moment in outcome.moments])
    cost.plot(minutes, gpu_hours(outcome.moments))
    _labelled({"pods": pods, "requests waiting": waiting, "TTFT p90, s": ttft, "GPU hours": cost})
    cost.set_xlabel("minutes")
    figure.suptitle(f"{title}: {outcome.gpu_hours:.1f} GPU hours, {outcome.attained:.1%} in SLO")
    figure.savefig(path)


def groups(outcome: Outcome) -> list[tuple[str, list[int]]]:
    """Decode pools first, then the tasks with most pods over the time, each by itself; the others added up."""
    moments = outcome.moments
    most = {name: sum(moment.replicas[name] for moment in moments) for name in moments[0].replicas}
    names = sorted(most, key=lambda name: (name not in outcome.pools, -most[name]))
    found = [(name, [moment.replicas[name] for moment in moments]) for name in names[:_SHOWN]]
    if rest := names[_SHOWN:]:
        found.append((f"{len(rest)} others", [sum(moment.replicas[name] for name in rest) for moment in moments]))
    return found


def _labelled(plots: dict[str, Axes]) -> None:
    for text, axes in plots.items():
        axes.set_ylabel(text)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
