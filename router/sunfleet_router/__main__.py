"""``python -m sunfleet_router [--config FILE] [--host HOST] [--port PORT] [--metrics-port PORT] [--admin-port PORT]``:
run a router.

Without ``--config`` the fleet comes from Kubernetes. Everything else is set by ``SUNFLEET_ROUTER_*`` (``settings.py``).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import uvloop

from sunfleet_api.settings import UnusableSettings, read
from sunfleet_router.server import run
from sunfleet_router.settings import ConfigError, RouterSettings
from sunfleet_router.telemetry import logs


def _flags(arguments: list[str]) -> dict[str, object]:
    parser = argparse.ArgumentParser(prog="python -m sunfleet_router", description="The Sunfleet router.")
    parser.add_argument("--config", type=Path, help="a YAML file of tasks and endpoints, instead of Kubernetes")
    parser.add_argument("--host", help="address to listen on")
    parser.add_argument("--port", type=int, help="port of the OpenAI API")
    parser.add_argument("--metrics-port", type=int, help="port of /metrics")
    parser.add_argument("--admin-port", type=int, help="port on which the operator asks; none with --config")
    parser.add_argument("--kubeconfig", type=Path, help="instead of the pod's service account or the usual kubeconfig")
    given = vars(parser.parse_args(arguments))
    return {name: value for name, value in given.items() if value is not None}


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 after a drain, 2 for settings, a file or a port that cannot be used."""
    flags = _flags(sys.argv[1:] if arguments is None else arguments)
    try:
        settings = read(RouterSettings, **flags)
    except UnusableSettings as error:
        sys.stderr.write(f"settings (variables, or flags of their names) cannot be used:\n{error}\n")
        return 2
    logs.set_up(settings.log_level, settings.log_format)
    try:
        uvloop.run(run(settings))
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
