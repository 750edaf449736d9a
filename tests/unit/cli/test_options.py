"""Numbers that options take."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from sunfleet_cli.options import Finite


@pytest.mark.parametrize("given", ["nan", "inf", "-inf", "1e999"])
def test_what_is_no_finite_number_is_refused(given: str) -> None:
    @click.command()
    @click.option("--rate", type=Finite(0))
    def command(rate: float) -> None:
        click.echo(rate)

    result = CliRunner().invoke(command, ["--rate", given])
    assert (result.exit_code, "Invalid value for '--rate'" in result.output) == (2, True)
    assert CliRunner().invoke(command, ["--rate", "1.5"]).output == "1.5\n"
