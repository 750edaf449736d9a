"""``status``, ``explain`` and ``doctor``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import click
from rich.console import Group
from rich.table import Table
from rich.text import Text

from sunfleet_api.prefill_pool import PREFILL_POOL
from sunfleet_api.shared_decoder import SHARED_DECODER
from sunfleet_api.sun_model import SUN_MODEL
from sunfleet_cli import checkup, fleet
from sunfleet_cli.cluster import Cluster, current_namespace, examine
from sunfleet_cli.commands.completing import any_object, contexts, kinds_by_name
from sunfleet_cli.output import follow, output_option, show, table

_KINDS: Final = kinds_by_name((SHARED_DECODER, SUN_MODEL, PREFILL_POOL))
_REFRESH_SECONDS: Final = 2.0
context_option = click.option(
    "--context", shell_complete=contexts, help="Context of the kubeconfig. Default: the current one."
)


@click.command()
@click.option("-n", "--namespace", help="Only this namespace. Default: all.")
@click.option("-w", "--watch", is_flag=True, help="Show it again every two seconds, until interrupted.")
@context_option
@output_option
def status(namespace: str | None, watch: bool, context: str | None, output: str) -> None:
    """The whole fleet in one table: decoders, their prefill pools and tasks, pods, who scales them, what is wrong."""
    cluster = Cluster(context)
    if namespace is not None and cluster.has_namespace(namespace) is False:
        raise click.ClickException(f"namespace {namespace} does not exist; without -n every namespace is shown")
    if watch:
        follow(output, _looks(cluster, namespace))
        return
    found = _rows(cluster, namespace)
    if not found:
        where = "any namespace" if namespace is None else f"namespace {namespace}; without -n every namespace is shown"
        click.echo(f"No SharedDecoder, PrefillPool or SunModel in {where}.", err=True)  # programs read an empty list
    if found or output != "table":
        show(output, [row.data() for row in found], lambda: _table(found))


def _looks(cluster: Cluster, namespace: str | None) -> Iterator[tuple[list[dict[str, str]], Callable[[], Table]]]:
    while True:
        found = _rows(cluster, namespace)
        yield [row.data() for row in found], partial(_table, found)
        time.sleep(_REFRESH_SECONDS)


def _rows(cluster: Cluster, namespace: str | None) -> list[fleet.Row]:
    return fleet.rows(
        cluster.every(SHARED_DECODER.plural, namespace),
        cluster.every(PREFILL_POOL.plural, namespace, newer=True),
        cluster.every(SUN_MODEL.plural, namespace),
    )


def _table(rows: list[fleet.Row]) -> Table:
    return table(fleet.COLUMNS, [row.cells() for row in rows])


@click.command()
@click.argument("what", metavar="KIND/NAME", shell_complete=any_object)
@click.option("-n", "--namespace", help="Default: the context's.")
@context_option
@output_option
def explain(what: str, namespace: str | None, context: str | None, output: str) -> None:
    """Why an object is not Ready, and why it has this many pods.

    KIND/NAME is for example sun/maths, sdec/base or spool/adapters.
    """
    word, slash, name = what.partition("/")
    kind = _KINDS.get(word.lower())
    if not slash or kind is None or not name:
        known = ", ".join(sorted(_KINDS))
        raise click.BadParameter(f"{what!r}: expected KIND/NAME with a KIND of {known}", param_hint="KIND/NAME")
    space, cluster = namespace or current_namespace(context), Cluster(context)
    live = cluster.get(kind.plural, space, name)
    events = cluster.events(space, str(live["metadata"]["uid"]))
    made = fleet.explain(kind.kind, live, events)
    show(output, made.data(), lambda: _told(made))


def _told(made: fleet.Explanation) -> Group:
    lines = [Text(made.object, style="bold"), Text(made.verdict), *(Text(f"  {text}") for text in made.problems)]
    lines.append(Text(made.count))
    lines += [Text(f"  {name} = {value}") for name, value in made.figures.items()]
    if made.events:
        lines += [Text("Events:"), *(Text(f"  {text}") for text in made.events)]
    return Group(*lines)


@click.command()
@click.option("--system-namespace", default="sunfleet-system", show_default=True, help="Where operator and router run.")
@context_option
@output_option
def doctor(system_namespace: str, context: str | None, output: str) -> None:
    """Is everything there that a fleet needs? Exit code 1 when something has to be mended."""
    found = checkup.findings(examine(context, system_namespace))
    rows = [[one.check, one.verdict, one.message] for one in found]
    show(output, [one.data() for one in found], lambda: table(("check", "verdict", "message"), rows))
    if any(one.verdict == "failed" for one in found):
        raise SystemExit(1)
