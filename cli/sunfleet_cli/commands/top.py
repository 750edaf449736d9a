"""``top``: what the fleet does now."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import click
from rich.console import Group
from rich.text import Text

from sunfleet_cli import live
from sunfleet_cli.commands.completing import contexts
from sunfleet_cli.live import Look, Now
from sunfleet_cli.options import Finite
from sunfleet_cli.output import follow, output_option, show, table
from sunfleet_cli.reach import scrape

Scrape = Callable[[], dict[str, str]]


@click.command()
@click.option("-w", "--watch", is_flag=True, help="Go on until interrupted.")
@click.option("--interval", type=Finite(0.2, 3600), default=2.0, show_default=True,
              help="Seconds between two looks: rates are over that time.")  # fmt: skip
@click.option("--system-namespace", default="sunfleet-system", show_default=True, help="Where the routers run.")
@click.option("--context", shell_complete=contexts, help="Context of the kubeconfig. Default: the current one.")
@output_option
def top(watch: bool, interval: float, system_namespace: str, context: str | None, output: str) -> None:
    """Live tokens per second, queues and KV of every task and decode pool, from the routers' own metrics."""
    looks = _looks(partial(scrape, context, system_namespace), interval)
    if watch:
        follow(output, ((found.data(), partial(_tables, found)) for found in looks))
        return
    found = next(looks)
    show(output, found.data(), partial(_tables, found))


def _looks(ask: Scrape, interval: float) -> Iterator[Now]:
    before = _look(ask)
    while True:
        time.sleep(interval)
        after = _look(ask)
        yield live.now(before, after)
        before = after


def _look(ask: Scrape) -> Look:
    texts = ask()
    try:
        return Look(time.monotonic(), {pod: live.parsed(text) for pod, text in texts.items()})
    except ValueError as error:
        raise click.ClickException(f"what the routers answer is no metrics: {error}") from None


def _tables(found: Now) -> Group:
    tasks = [one.cells() for one in found.tasks]
    lines: list[Any] = [table(live.TASK_COLUMNS, [*tasks, live.sums(found.tasks)]), Text("")]
    lines.append(table(live.POOL_COLUMNS, [pool.cells() for pool in found.pools]))
    count = "1 router" if found.routers == 1 else f"{found.routers} routers"
    return Group(*lines, Text(f"{count}, over {found.seconds:.1f} s", style="dim"))
