"""Command line: `python -m sunfleet_cluster VERB`; `--help` lists the verbs."""

import argparse
import os
import signal
import sys

from sunfleet_api.settings import UnusableSettings
from sunfleet_cluster import cluster_verbs, fleet_verbs
from sunfleet_cluster.errors import ClusterError
from sunfleet_cluster.progress import Progress

MODULES = (cluster_verbs, fleet_verbs)


# `su` gives root the PATH of a user, and Go is unpacked to where nobody's PATH leads.
_MORE_PATH = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/go/bin")


class _Told(BaseException):
    """SIGTERM: unlike the default, temporary files are tidied up on the way out."""


def main(arguments: list[str] | None = None) -> int:
    """Run a verb; 0 when it did its work, 1 when it could not and said why, 2 for wrong usage, 130 when interrupted,
    143 when told to end.
    """
    parser = argparse.ArgumentParser(
        prog="python -m sunfleet_cluster", description="The cluster that the fleet runs on."
    )
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    for module in MODULES:
        module.register(verbs)
    chosen = parser.parse_args(arguments)
    complete_path()
    before = signal.signal(signal.SIGTERM, _told)
    try:
        return _run(chosen)
    finally:
        signal.signal(signal.SIGTERM, before)


def _told(*_: object) -> None:
    raise _Told


def complete_path() -> None:
    """Let programs be found that root needs."""
    known = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join([*known, *(folder for folder in _MORE_PATH if folder not in known)])


def _run(chosen: argparse.Namespace) -> int:
    try:
        code: int = chosen.run(chosen, Progress())
    except ClusterError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except UnusableSettings as error:
        sys.stderr.write(f"error: settings cannot be used:\n{error}\n")
        return 2
    except OSError as error:  # a file of another user, a full disk
        sys.stderr.write(f"error: {error.strerror or error}{f': {error.filename}' if error.filename else ''}\n")
        if isinstance(error, PermissionError):
            who = "Run it as the user who made this (root for a cluster)"
            sys.stderr.write(f"{who}, or set SUNFLEET_STATE to a folder of your own.\n")
        return 1
    except (KeyboardInterrupt, _Told) as stopped:
        sys.stderr.write("interrupted; run the same verb again to go on\n")
        return 143 if isinstance(stopped, _Told) else 130
    return code


if __name__ == "__main__":
    raise SystemExit(main())
