"""Types of options."""

from __future__ import annotations

import math
from typing import Any

import click


class Finite(click.FloatRange):
    """A number of a range; neither NaN, which no comparison refuses, nor infinite, with which a loop never ends."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number.", param, ctx)
        return number
