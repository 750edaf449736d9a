"""``tune``, ``eval``, ``quantize``: verbs of the tuner (``sunfleet_tuner``), whose own parser reads their words.

So there is one list of settings and one way to refuse a wrong one, here and in ``python -m sunfleet_tuner``. This
module shows that list as ``--help``, completes it, and starts the tuner. torch is loaded only when a verb runs: a fleet
is looked at from machines that have none.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

AddFlags = Callable[[argparse.ArgumentParser], None]

_INSTALL: Final = "pip install 'sunfleet[tuner]'; in a checkout: pip install '.[tuner]'"


class TunerCommand(click.Command):
    """A verb of the tuner; ``flags`` says which function describes its words, and is asked when they are needed."""

    def __init__(self, name: str, flags: Callable[[], AddFlags], summary: str) -> None:
        super().__init__(name, help=summary, context_settings={"ignore_unknown_options": True})
        self._flags = flags

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """What the tuner's parser knows, for help and completion."""
        described = argparse.ArgumentParser(add_help=False)
        self._flags()(described)
        own = super().get_params(ctx)  # --help
        return [*(_parameter(action) for action in described._actions), *own]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Leave the words as they are, but for a call for help and for a shell that completes them."""
        if ctx.resilient_parsing or not set(ctx.help_option_names).isdisjoint(args):
            return super().parse_args(ctx, args)
        ctx.args = args
        return args

    def invoke(self, ctx: click.Context) -> None:
        """Run the tuner with the words; its exit code is the command's."""
        ctx.exit(_run(str(self.name), ctx.args))


def _run(verb: str, words: Sequence[str]) -> int:
    from sunfleet_tuner.__main__ import main  # noqa: PLC0415 - only these verbs need it

    try:
        return main([verb, *words], program="sunfleet")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("sunfleet"):
            raise  # a fault of ours, which no installation mends
        raise click.ClickException(
            f"{error.name} is not installed, and `sunfleet {verb}` needs it: {_INSTALL}"
        ) from error


def _parameter(action: argparse.Action) -> click.Parameter:
    """The same option or argument in click's words. None is required here: the tuner's parser says what is missing."""
    if not action.option_strings:
        return click.Argument([action.dest], type=click.Path(), required=False, metavar=action.dest.upper())
    if isinstance(action, argparse.BooleanOptionalAction):
        return click.Option(["/".join(action.option_strings)], default=None, help=action.help)
    text = (action.help or "").replace("%%", "%")
    return click.Option(action.option_strings, type=_type(action), help=text, metavar=_metavar(action))


def _type(action: argparse.Action) -> Any:
    """Where anything may stand a shell offers files, as it does for commands that it does not know."""
    if action.choices is not None:
        return click.Choice([str(choice) for choice in action.choices])
    return click.STRING if action.metavar in {"N", "X"} or action.type is int else click.Path()


def _metavar(action: argparse.Action) -> str | None:
    if action.choices is not None:
        return None  # the choices
    return str(action.metavar or ("N" if action.type is int else action.dest.upper()))


def _tune_flags() -> AddFlags:
    from sunfleet_tuner.configure import add_flags  # noqa: PLC0415 - as above

    return add_flags


def _eval_flags() -> AddFlags:
    from sunfleet_tuner.flags import add_eval_flags  # noqa: PLC0415 - as above

    return add_eval_flags


def _quantize_flags() -> AddFlags:
    from sunfleet_tuner.flags import add_quantize_flags  # noqa: PLC0415 - as above

    return add_quantize_flags


tune = TunerCommand("tune", _tune_flags, "Make a prefill module of a dataset and the frozen decoder that will read it.")
evaluate = TunerCommand(
    "eval", _eval_flags, "Say how often a pair of modules, or a task of a running fleet, answers right."
)
quantize = TunerCommand("quantize", _quantize_flags, "Make a decoder a 4-bit one (W4A16), for QSUN.")
