"""A run's tables: for people on a terminal, as Markdown on a pipe, as JSON for scripts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from sunfleet_routerbench import ledger, results
from sunfleet_routerbench.ledger import Soaked
from sunfleet_routerbench.results import Bar, Measure
from sunfleet_routerbench.scale import Scaled
from sunfleet_routerbench.scenarios import Scenario

Rows = list[list[str]]


def show(facts: dict[str, Any], scenarios: Sequence[Scenario], measures: Sequence[Measure], output: str) -> None:
    """Print to standard output; ``output``: ``table`` or ``json``."""
    if output == "json":
        print(json.dumps(document(facts, measures), indent=2))
        return
    console = Console()
    for title, rows in tables(scenarios, measures):
        if console.is_terminal:
            _rich(console, title, rows)
        else:
            print(f"\n### {title}\n\n{_markdown(rows)}")


def show_soak(soaked: Soaked) -> None:
    """What clients, router and engines counted, and what does not add up."""
    rows = [["at the clients", "requests"], *([name, f"{count:,}"] for name, count in sorted(soaked.outcomes.items()))]
    codes = ledger.requests_by_code(soaked.metrics)
    parts = (
        ("Clients", rows),
        ("Router", [["code", "requests"], *([code, f"{count:,}"] for code, count in sorted(codes.items()) if count)]),
        ("Engines", [["", "prefill", "decode"], *([name, f"{count:,}", f"{soaked.decodes[name]:,}"]
                                                   for name, count in soaked.prefills.items())]),
    )  # fmt: skip
    console = Console()
    for title, part in parts:
        if console.is_terminal:
            _rich(console, title, part)
        else:
            print(f"\n### {title}\n\n{_markdown(part)}")
    memory = soaked.memory or [0.0]
    print(f"\nmemory {memory[len(memory) // 4]:.1f} MB after a quarter, {memory[-1]:.1f} MB at the end, "
          f"{max(memory):.1f} MB at most; open files {soaked.files[0]} and {soaked.files[1]}")  # fmt: skip
    for problem in ledger.problems(soaked) or ["everything adds up"]:
        print(problem)


def show_scaled(scaled: Scaled) -> None:
    """What one router bore, and what it did not."""
    console, rows = Console(), [["what", "measured"], *(list(row) for row in scaled.rows)]
    if console.is_terminal:
        _rich(console, "Scale", rows)
    else:
        print(f"\n### Scale\n\n{_markdown(rows)}")
    for problem in scaled.problems or ["everything is borne"]:
        print(problem)


def document(facts: dict[str, Any], measures: Sequence[Measure]) -> dict[str, Any]:
    """Everything that was measured."""
    bars = [asdict(bar) | {"held": bar.held} for bar in results.bars(measures)]
    return {"facts": facts, "bars": bars, "measures": [asdict(one) for one in measures]}


def tables(scenarios: Sequence[Scenario], measures: Sequence[Measure]) -> list[tuple[str, Rows]]:
    found = [(f"({one.name}) {one.what}", _scenario(one, measures)) for one in scenarios]
    bars = results.bars(measures)
    return [*found, ("Bars", _bars(bars))] if bars else found


def _scenario(scenario: Scenario, measures: Sequence[Measure]) -> Rows:
    figures = results.figures(scenario.stream)
    head = ["router"]
    for figure in figures:
        head += [figure.title, "minus direct"] if figure.floored else [figure.title]
    rows = [[*head, "failures"]]
    for contender in dict.fromkeys(one.contender for one in measures if one.scenario == scenario.name):
        row = [contender]
        for figure in figures:
            found = results.spread(measures, contender, scenario.name, figure)
            row.append(str(found) if found else "-")
            if figure.floored:
                added = results.above_floor(measures, contender, scenario.name, figure)
                row.append("-" if added is None else f"{added:+.2f}")
        failed = results.failures(measures, contender, scenario.name)
        rows.append([*row, ", ".join(f"{name}: {count}" for name, count in failed.items()) or "0"])
    return rows


def _bars(bars: Sequence[Bar]) -> Rows:
    rows = [["bar", "got", "wanted", ""]]
    for bar in bars:
        sign = ">=" if bar.more_is_better else "<="
        wanted = f"{sign} {results.short(bar.wanted)}"
        rows.append([bar.what, results.short(bar.got), wanted, "held" if bar.held else "MISSED"])
    return rows


def _rich(console: Console, title: str, rows: Rows) -> None:
    table = Table(title=title, title_justify="left")
    for number, name in enumerate(rows[0]):
        table.add_column(name, justify="left" if number == 0 else "right")
    for row in rows[1:]:
        table.add_row(*row, style="red" if row[-1] == "MISSED" else None)
    console.print(table)


def _markdown(rows: Rows) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(lines)
