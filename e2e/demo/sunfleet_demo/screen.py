"""What a person sees: live tables and colour on a terminal, plain lines in a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from sunfleet_demo.proof import Claim
from sunfleet_demo.questions import Asked, Known
from support.fleet import Line, Snapshot

_STYLES = {True: "green", False: "yellow"}


class Watcher(Protocol):
    def __call__(self, seen: Snapshot) -> None: ...


class Screen:
    """Writes to ``console``."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def head(self, text: str) -> None:
        self._console.print(f"\n[bold]{escape(text)}[/]")

    def say(self, text: str) -> None:
        self._console.print(f"  {text}", markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def watching(self) -> Iterator[Watcher]:
        """Shows snapshots: redrawn in place on a terminal, only what changed elsewhere."""
        if not self._console.is_terminal:
            yield _Changes(self)
            return
        with Live(console=self._console, refresh_per_second=4) as live:
            yield lambda seen: live.update(_fleet_table(seen))

    def answer(self, asked: Asked, known: Known) -> None:
        """The question, the answer, who served it and how fast."""
        answer, how = asked.answer, "streamed" if asked.streamed else "in one piece"
        first = f"first token after {answer.first_token_seconds:.2f} s, " if asked.streamed else ""
        self._console.print(
            f"  [cyan]{escape(asked.question.task)}[/] ({how}): {escape(asked.question.text)}",
            highlight=False,
            soft_wrap=True,
        )
        self._console.print(f"    [bold]{escape(answer.text)}[/]", highlight=False, soft_wrap=True)
        self.say(f"  prefill {answer.prefill_pod}, decode {answer.decode_pod}")
        self.say(f"  {first}{len(answer.token_ids)} tokens in {answer.seconds:.2f} s")
        if not asked.streamed:
            base = known.base_alone.text.replace("\n", " ")
            self.say(f"  (the base model alone: {base[:90]}{'...' if len(base) > 90 else ''})")

    def claims(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            mark = "[green]✓[/]" if claim.holds else "[bold red]✗[/]"
            self._console.print(
                f"  {mark} {escape(claim.sentence)}: {escape(claim.seen)}", highlight=False, soft_wrap=True
            )


class _Changes:
    """Prints a line when an object or a pod enters another state."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._known: dict[str, str] = {}

    def __call__(self, seen: Snapshot) -> None:
        for line in (*seen.objects, *seen.pods):
            state = f"{line.state}{f' ({line.reason})' if line.reason else ''}"
            if self._known.get(line.name + line.kind) != state:
                self._known[line.name + line.kind] = state
                self._screen.say(f"{line.seconds:>4} s  {line.kind} {line.name}: {state}")


def _fleet_table(seen: Snapshot) -> Group:
    table = Table(box=None, padding=(0, 2, 0, 2))
    for column in ("", "NAME", "STATE", "AGE", "WHY"):
        table.add_column(column, no_wrap=column != "WHY", overflow="fold")
    for line in (*seen.objects, *seen.pods):
        table.add_row(*_cells(line))
    return Group(table)


def _cells(line: Line) -> tuple[Text, ...]:
    return (
        Text(line.kind, "dim"), Text(line.name), Text(line.state, _STYLES[line.ready]), Text(f"{line.seconds} s"),
        Text(line.detail or line.reason, "dim"),
    )  # fmt: skip
