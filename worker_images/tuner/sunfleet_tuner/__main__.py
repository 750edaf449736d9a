"""``python -m sunfleet_tuner tune|eval|quantize``: make prefill modules, measure them, quantise decoders.

``sunfleet tune`` and its sisters (:mod:`sunfleet_cli.commands.tuner`) are the same.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from sunfleet_tuner.configure import add_flags, configure
from sunfleet_tuner.errors import TuningError
from sunfleet_tuner.failure import write_failure
from sunfleet_tuner.flags import add_eval_flags, add_quantize_flags


def main(argv: list[str] | None = None, program: str = "python -m sunfleet_tuner") -> int:
    """Run one command; 0, or 1 after an error that a person can mend. ``program``: what the usage calls it."""
    args = _parser(program).parse_args(argv)
    from transformers.utils import logging  # noqa: PLC0415 - --help needs neither it nor the seconds it takes

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        code: int = args.run(args)
    except (TuningError, OSError) as error:  # OSError: a folder that cannot be written or is somebody's
        sys.stderr.write(f"error: {error}\n")
        if args.failure is not None:
            write_failure(args.failure, error)
        return 1
    return code


def _tune(args: argparse.Namespace) -> int:
    configured = configure(args)  # before torch and accelerate, which take seconds to import
    from rich.console import Console  # noqa: PLC0415

    from sunfleet_tuner.processes import is_main  # noqa: PLC0415
    from sunfleet_tuner.tune import tune  # noqa: PLC0415

    console = Console(soft_wrap=True, quiet=not is_main())
    console.print(configured.shown(), highlight=False, markup=False)
    outcome = tune(configured.config, console)
    console.print(f"{'made' if outcome.made else 'kept'} {configured.config.output}", highlight=False, markup=False)
    return 0


def _eval(args: argparse.Namespace) -> int:
    from sunfleet_tuner.measure import run  # noqa: PLC0415

    return run(args)


def _quantize(args: argparse.Namespace) -> int:
    from sunfleet_tuner.quantize import run  # noqa: PLC0415

    run(args)
    return 0


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program, description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--failure", type=Path, metavar="FILE", help="file that gets the reason of a failure, for a supervisor"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    tune = commands.add_parser("tune", help="a dataset and a frozen decoder -> a prefill module")
    add_flags(tune)
    tune.set_defaults(run=_tune)
    evaluation = commands.add_parser("eval", help="how often a pair, or a task of a fleet, answers right")
    add_eval_flags(evaluation)
    evaluation.set_defaults(run=_eval)
    quantising = commands.add_parser("quantize", help="a decoder -> a 4-bit one, for QSUN")
    add_quantize_flags(quantising)
    quantising.set_defaults(run=_quantize)
    return parser


if __name__ == "__main__":
    sys.exit(main())
