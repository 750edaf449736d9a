"""What the exactness suites compared, one row per line of the contract and kind of modules. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

HEADS = ("contract line", "decoder", "prefill", "requests", "tokens", "mismatches", "near-ties", "resumes", "preempted")
NAMES = 3  # columns that are no numbers


@dataclass
class Row:
    """Sums over the answers of one kind. ``tokens``: compared one by one; near-ties are those that rounding excuses."""

    line: str
    decoder: str
    prefill: str
    requests: int = 0
    tokens: int = 0
    mismatches: int = 0
    near_ties: int = 0
    resumes: int = 0
    preemptions: int = 0

    @property
    def cells(self) -> tuple[str, ...]:
        return tuple(str(value) for value in asdict(self).values())


class Table:
    """Rows in the order in which they were first asked for."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str], Row] = {}

    @property
    def rows(self) -> list[Row]:
        return list(self._rows.values())

    def row(self, line: str, decoder: str, prefill: str) -> Row:
        """The row of a contract line and its kinds of modules."""
        return self._rows.setdefault((line, decoder, prefill), Row(line, decoder, prefill))

    def total(self) -> Row:
        total = Row("all", "", "")
        for row in self.rows:
            for name, value in asdict(row).items():
                if isinstance(value, int):
                    setattr(total, name, getattr(total, name) + value)
        return total

    def text(self) -> str:
        """Aligned columns; numbers to the right."""
        cells = [HEADS, *(row.cells for row in self.rows), self.total().cells]
        widths = [max(len(line[column]) for line in cells) for column in range(len(HEADS))]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if column < NAMES else cell.rjust(width) for column, (cell, width) in pairs
            ).rstrip()
            for pairs in (enumerate(zip(line, widths, strict=True)) for line in cells)
        )

    def write(self, path: Path) -> None:
        """As JSON, a list of rows."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([asdict(row) for row in self.rows], indent=1) + "\n")
