"""Printing: tables with colour on a terminal and plain in a pipe, JSON and YAML for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import click
import yaml
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table

FORMATS: Final = ("table", "json", "yaml")
_PIPE_WIDTH: Final = 4096
_COLOURS: Final = {
    "True": "green", "False": "red", "Unknown": "yellow", "ok": "green", "warning": "yellow", "failed": "red",
}  # fmt: skip


def output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``-o table|json|yaml``."""
    return click.option(
        "-o", "--output", type=click.Choice(FORMATS), default="table", show_default=True, help="Form of the output."
    )(command)


def show(output: str, data: Any, render: Callable[[], RenderableType]) -> None:
    """Print ``data`` for programs, or what ``render`` makes of it for people."""
    if output == "json":
        click.echo(json.dumps(data, indent=2))
    elif output == "yaml":
        click.echo(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), nl=False)
    else:
        # A pipe has no width: whole lines, which other programs can read.
        (Console() if _terminal() else Console(width=_PIPE_WIDTH)).print(render())


def follow(output: str, looks: Iterable[tuple[Any, Callable[[], RenderableType]]]) -> None:
    """Each look as :func:`show` has it: in place on a terminal, one after the other in a pipe, where a JSON document is
    a line. It ends with ``looks``, or when it is interrupted."""
    try:
        if output == "table" and _terminal():
            with Live(auto_refresh=False, screen=True) as live:
                for _, render in looks:
                    live.update(render(), refresh=True)
            return
        for data, render in looks:
            _next(output, data, render)
    except KeyboardInterrupt:
        return


def _next(output: str, data: Any, render: Callable[[], RenderableType]) -> None:
    if output == "json":
        click.echo(json.dumps(data))
        return
    if output == "yaml":
        click.echo("---")
    show(output, data, render)
    if output == "table":
        click.echo()


def _terminal() -> bool:
    return Console().is_terminal


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """As ``kubectl get`` prints it: no frame, headings in capitals; words of conditions are coloured."""
    made = Table(box=None, pad_edge=False, show_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column.upper(), overflow="fold")
    for row in rows:
        made.add_row(*(_coloured(cell) for cell in row))
    return made


def _coloured(cell: str) -> str:
    colour = _COLOURS.get(cell)
    return f"[{colour}]{cell}[/{colour}]" if colour else cell.replace("[", r"\[")
