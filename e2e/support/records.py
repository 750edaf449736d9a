"""Figures that a suite measured, for people and for later runs to compare."""

from __future__ import annotations

import json
from pathlib import Path


class Records:
    """Names, which say what was measured and in which unit, and values."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}

    def add(self, name: str, value: float) -> None:
        self.values[name] = round(value, 2)

    def text(self) -> str:
        """A line for each."""
        return "\n".join(f"{name}: {value:g}" for name, value in self.values.items())

    def write(self, file: Path) -> None:
        """As JSON; the folder is made when it is missing."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(self.values, indent=2) + "\n")
