"""``PYTHONPATH=bench/router python -m sunfleet_routerbench [bench|soak|scale] [--help]``."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from sunfleet_routerbench import bench, ledger, results, scale, soak, table
from sunfleet_routerbench.machine import StartError, facts
from sunfleet_routerbench.programs import MissingProgramError, Programs
from sunfleet_routerbench.scenarios import SCENARIOS


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sunfleet_routerbench", description="The router beside its peers.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("bench", help="throughput and latency, beside a direct run and other proxies")
    one.add_argument("--rounds", type=int, default=3)
    one.add_argument("--scale", type=float, default=1.0, help="of the measured windows' length")
    one.add_argument("--scenarios", default=",".join(each.name for each in SCENARIOS))
    one.add_argument("--peers", action="store_true", help="also vllm-router, from PyPI")
    one.add_argument("--only", default="", help="these contenders, with commas")
    one.add_argument("--quick", action="store_true", help="one round, short windows")
    one.add_argument("--output", choices=("table", "json"), default="table")
    two = verbs.add_parser("soak", help="load on engines with faults; exits with 1 if anything does not add up")
    two.add_argument("--minutes", type=float, default=10)
    three = verbs.add_parser(
        "scale", help="5,000 streams, 100,000 requests, two processes; exits with 1 if it is not borne"
    )
    three.add_argument("--share", type=float, default=1.0, help="of these numbers")
    return parser


def main() -> int:
    given = _parser().parse_args()
    programs = Programs(Path(os.environ.get("SUNFLEET_STATE") or Path.home() / ".local/state/sunfleet"))
    try:
        return {"bench": _bench, "soak": _soak, "scale": _scale}[given.verb](given, programs)
    except (MissingProgramError, StartError) as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _bench(given: argparse.Namespace, programs: Programs) -> int:
    wanted = given.scenarios.split(",")
    plan = bench.Plan(
        scenarios=[one for one in SCENARIOS if one.name in wanted],
        rounds=1 if given.quick else given.rounds,
        scale=0.25 if given.quick else given.scale,
        peers=given.peers,
        only=tuple(filter(None, given.only.split(","))),
    )
    about = facts(sys.argv)
    measures = bench.run(plan, programs)
    table.show(about, plan.scenarios, measures, given.output)
    if empty := results.worthless(measures):
        sys.stderr.write("nothing that counts was measured of: " + ", ".join(empty) + "\n")
    return 1 if empty else 0


def _soak(given: argparse.Namespace, programs: Programs) -> int:
    soaked = soak.run(programs, 60 * given.minutes)
    table.show_soak(soaked)
    return 1 if ledger.problems(soaked) else 0


def _scale(given: argparse.Namespace, programs: Programs) -> int:
    scaled = scale.run(programs, scale.Plan(given.share))
    table.show_scaled(scaled)
    return 1 if scaled.problems else 0


if __name__ == "__main__":
    sys.exit(main())
