"""``simulate`` and ``plan``: a trace through the scaler's own policy, before it costs GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, get_args

import click
from rich.console import Group
from rich.text import Text

from sunfleet_cli import given
from sunfleet_cli.given import Scaling
from sunfleet_cli.options import Finite
from sunfleet_cli.output import output_option, show, table
from sunfleet_cli.sim import trace
from sunfleet_cli.sim.chart import sparkline
from sunfleet_cli.sim.costs import Costs
from sunfleet_cli.sim.model import Model
from sunfleet_cli.sim.policies import Oracle, Ours, Policy, Targets
from sunfleet_cli.sim.replay import Outcome, Slo, gpu_hours, one_pool, pool_each, replay
from sunfleet_cli.sim.trace import Pattern, Request, Shape

POLICIES: Final = ("sunfleet", "hpa", "keda", "oracle")
_KEDA_COOLDOWN_SECONDS: Final = 300.0
_REQUESTS_PER_POD: Final = 4.0


def _traffic(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say which traffic and which engines."""
    shape = Shape()
    options = (
        click.option("--trace", "path", type=click.Path(exists=True, dir_okay=False, path_type=Path),
                     help="JSON lines or CSV: time, task, prompt_tokens, output_tokens, or as Azure's traces."),
        click.option("--zipf", type=Finite(0, 10), help="Make traffic: popularity of task r is 1/r^ZIPF."),
        click.option("--pattern", type=click.Choice(get_args(Pattern)), default=shape.pattern, show_default=True,
                     help="Over time: sudden bursts, slow waves, or many at once and then none."),
        click.option("--tasks", type=click.IntRange(1), default=shape.tasks, show_default=True),
        click.option("--rate", type=Finite(0, min_open=True), default=shape.rate, show_default=True,
                     help="Requests a second, all tasks together, on average."),
        click.option("--minutes", type=Finite(1), default=60, show_default=True),
        click.option("--prompt-tokens", type=click.IntRange(1), default=shape.prompt_tokens, show_default=True),
        click.option("--output-tokens", type=click.IntRange(1), default=shape.output_tokens, show_default=True),
        click.option("--seed", type=int, default=0, show_default=True),
        click.option("--costs", "costs_file", type=click.Path(exists=True, dir_okay=False, path_type=Path),
                     help="YAML with measured figures of a pod. Default: round figures of an 8B model."),
        click.option("--autoscaling", type=click.Path(exists=True, dir_okay=False, path_type=Path),
                     help="YAML: spec.autoscaling of the tasks, or manifests (SunModel, SharedDecoder) that have one."),
        click.option("--ttft", type=Finite(0, min_open=True), default=Slo.ttft, show_default=True,
                     help="SLO: seconds to the first token."),
        click.option("--tpot", type=Finite(0, min_open=True), default=Slo.tpot, show_default=True,
                     help="SLO: seconds per further token."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@_traffic
@click.option("--policy", type=click.Choice(POLICIES), default="sunfleet", show_default=True)
@click.option("--budget", type=click.IntRange(1), help="gpuBudget of the fleet, for --policy sunfleet.")
@click.option("--plot", "picture", type=click.Path(dir_okay=False, writable=True, path_type=Path),
              help="Also draw it, into a .svg, .png or .pdf file.")  # fmt: skip
@output_option
def simulate(policy: str, budget: int | None, picture: Path | None, output: str, **options: Any) -> None:
    """Replay traffic through the scaler's policy: pods, waiting requests, latencies, GPU hours."""
    if budget is not None and policy != "sunfleet":
        raise click.UsageError(f"--budget is of --policy sunfleet: {policy} knows none")
    requests, costs, auto, slo = _inputs(options)
    made = _policy(policy, requests, auto, budget)
    topology = one_pool(requests)
    start = None if budget is None else _within(budget, costs, topology)
    outcome = replay(requests, costs, topology, made, slo, start=start)
    if picture is not None:
        _draw(picture, policy, costs, outcome)
    show(output, {"policy": policy, "costs": costs.source, **_data(outcome)}, lambda: _report(policy, costs, outcome))


def _within(budget: int, costs: Costs, topology: Mapping[str, Sequence[str]]) -> Callable[[Model], None]:
    """A fleet that begins with one pod each, pools first, as far as the budget goes."""
    each, (tasks,) = costs.gpus_per_pod, topology.values()
    if budget < 2 * each:
        raise click.BadParameter(f"{budget} GPUs hold no prefill pod beside a decode pod", param_hint="--budget")
    if budget < (needed := each * (len(tasks) + 1)):
        text = f"--budget {budget}: one pod of each of {len(tasks)} tasks and of the pool would take {needed} GPUs, so "
        click.echo(f"{text}some tasks wait for others; minReplicas: 0 and scaleToZero let them take turns", err=True)

    def start(model: Model) -> None:
        groups = [*(pool.group for pool in model.pools.values()), *model.prefill.values()]
        for group in groups[: budget // each]:
            model.ready_now(group, 1)

    return start


def _draw(picture: Path, policy: str, costs: Costs, outcome: Outcome) -> None:
    from sunfleet_cli import plot  # noqa: PLC0415 - half a second that only a picture needs

    try:
        plot.draw(picture, f"{policy}, {costs.gpus_per_pod} GPU a pod", outcome)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{picture}: {error}") from None


@click.command()
@_traffic
@output_option
def plan(output: str, **options: Any) -> None:
    """How many GPUs this traffic needs: SUN's one decode pool against a decode pool for each model."""
    requests, costs, auto, slo = _inputs(options)
    results = {
        name: replay(requests, costs, topology, _policy("sunfleet", requests, auto, None), slo)
        for name, topology in (("one shared pool", one_pool(requests)), ("a pool each", pool_each(requests)))
    }
    columns = ("topology", "peak gpus", "gpu hours", "in slo", "ttft p50", "ttft p99")
    rows = [[name, str(found.peak_gpus), f"{found.gpu_hours:.1f}", f"{found.attained:.1%}", _ms(found.ttft, "p50"),
             _ms(found.ttft, "p99")] for name, found in results.items()]  # fmt: skip
    data = {"costs": costs.source, "topologies": {name: _data(found) for name, found in results.items()}}
    show(output, data, lambda: Group(table(columns, rows), Text(f"costs: {costs.source}", style="dim")))


def _inputs(options: dict[str, Any]) -> tuple[list[Request], Costs, Scaling, Slo]:
    requests, slo = _requests(options), Slo(options["ttft"], options["tpot"])
    return requests, given.costs(options["costs_file"]), given.scaling(options["autoscaling"]), slo


def _requests(options: dict[str, Any]) -> list[Request]:
    if (options["path"] is None) == (options["zipf"] is None):
        raise click.UsageError("give either --trace FILE or --zipf S")
    if options["path"] is not None:
        try:
            with options["path"].open() as lines:
                return trace.read(lines, name=str(options["path"]))
        except trace.TraceError as error:
            raise click.ClickException(str(error)) from None
    names = ("pattern", "tasks", "zipf", "rate", "prompt_tokens", "output_tokens")
    found = trace.made(
        Shape(seconds=options["minutes"] * 60, **{name: options[name] for name in names}), options["seed"]
    )
    if not found:
        raise click.ClickException("not one request in that time: raise --rate or --minutes")
    return found


def _policy(name: str, requests: list[Request], auto: Scaling, budget: int | None) -> Policy:
    tasks = auto.tasks
    made: dict[str, Callable[[], Policy]] = {
        "sunfleet": lambda: Ours(tasks, auto.pools, budget),
        "hpa": lambda: Targets(_REQUESTS_PER_POD, most=tasks.max_replicas, behavior=tasks.behavior),
        "keda": lambda: Targets(
            _REQUESTS_PER_POD, most=tasks.max_replicas, zero_after=_KEDA_COOLDOWN_SECONDS, behavior=tasks.behavior
        ),
        "oracle": lambda: Oracle(requests),
    }
    return made[name]()


def _data(outcome: Outcome) -> dict[str, Any]:
    made = asdict(outcome)
    made["moments"] = list(made["moments"])
    return made


def _ms(values: Any, which: str) -> str:
    return f"{values.get(which, 0) * 1000:.0f} ms"


def _report(policy: str, costs: Costs, outcome: Outcome) -> Group:
    facts = [
        ["requests", f"{outcome.requests} ({outcome.finished} finished)"],
        ["in SLO", f"{outcome.attained:.1%}"],
        ["GPU hours", f"{outcome.gpu_hours:.1f}, {outcome.peak_gpus} at the peak"],
        ["TTFT p50, p90, p99", ", ".join(_ms(outcome.ttft, which) for which in ("p50", "p90", "p99"))],
        ["TPOT p50, p99", ", ".join(_ms(outcome.tpot, which) for which in ("p50", "p99"))],
    ]
    series = {"GPUs": [float(moment.gpus) for moment in outcome.moments],
              "GPU hours": gpu_hours(outcome.moments),
              "waiting": [float(moment.waiting) for moment in outcome.moments],
              "TTFT p90, s": [round(moment.ttft or 0.0, 2) for moment in outcome.moments]}  # fmt: skip
    for key in outcome.moments[0].replicas:
        series[key] = [float(moment.replicas[key]) for moment in outcome.moments]
    rows = [[name, sparkline(values), f"{min(values):g} to {max(values):g}"] for name, values in series.items()]
    foot = Text(f"costs: {costs.source}", style="dim")
    return Group(table((policy, ""), facts), Text(""), table(("over time", "", "range"), rows), foot)
