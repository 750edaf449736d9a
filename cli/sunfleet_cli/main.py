"""The ``sunfleet`` command; ``kubectl-sunfleet`` on the PATH makes it ``kubectl sunfleet``.

``sunfleet completion bash|zsh|fish`` prints what a shell needs to complete its words; for those of ``kubectl sunfleet``
kubectl asks ``kubectl_complete-sunfleet``.
"""

from __future__ import annotations

import io
import sys

import click
from click.shell_completion import get_completion_class

from sunfleet_cli.commands.chat import chat
from sunfleet_cli.commands.completing import for_kubectl
from sunfleet_cli.commands.foresee import plan, simulate
from sunfleet_cli.commands.look import doctor, explain, status
from sunfleet_cli.commands.measure import measure
from sunfleet_cli.commands.top import top
from sunfleet_cli.commands.tuner import evaluate, quantize, tune


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="sunfleet", message="%(version)s")
def cli() -> None:
    """Look at a fleet, ask it, try its scaling on a trace before it costs GPUs, and tune the modules it serves."""


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what completes words: `source <(sunfleet completion bash)`, or zsh; `sunfleet completion fish | source`."""
    made = get_completion_class(shell)
    if made is None:
        raise click.ClickException(f"{shell} is not supported")
    click.echo(made(cli, {}, "sunfleet", "_SUNFLEET_COMPLETE").source())


for _command in (status, top, explain, chat, doctor, measure, simulate, plan, tune, evaluate, quantize):
    cli.add_command(_command)


def main() -> None:
    """Entry point of ``sunfleet`` and ``kubectl-sunfleet``."""
    for stream in (sys.stdout, sys.stderr):
        # What a terminal or a pipe of another encoding lacks a letter for is no reason to say nothing.
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")
    cli(prog_name="sunfleet", complete_var="_SUNFLEET_COMPLETE")


def complete() -> None:
    """Entry point of ``kubectl_complete-sunfleet``, which kubectl calls with the words after ``kubectl sunfleet``."""
    click.echo("\n".join(for_kubectl(cli, sys.argv[1:])))
