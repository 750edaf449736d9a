"""The verbs of this room that concern the cluster itself."""

import argparse
import sys

from sunfleet_cluster import packages, preflight, programs, report
from sunfleet_cluster.choose import open_cluster
from sunfleet_cluster.embedded import EmbeddedCluster
from sunfleet_cluster.progress import Progress, elapsed
from sunfleet_cluster.state import StateFolder
from sunfleet_cluster.verbs import Verbs, add_verb


def register(verbs: Verbs) -> None:
    """Add the verbs to the command line."""
    add_verb(verbs, "up", _up, "start the cluster, or what is missing of it")
    down = add_verb(verbs, "down", _down, "stop the cluster and forget its objects; images and programs stay")
    kept = down.add_mutually_exclusive_group()
    kept.add_argument("--purge", action="store_true", help="forget its images and certificates too")
    kept.add_argument("--keep-objects", action="store_true", help="forget nothing: the next up resumes")
    status = add_verb(verbs, "status", _status, "show the state of every part; exit code 0 when all is well")
    status.add_argument("--output", choices=("table", "json"), default="table")
    add_verb(
        verbs, "preflight", _preflight, "say at once what this machine lacks for cluster and fleet; changes nothing"
    )
    add_verb(verbs, "packages", _packages, "install the Debian packages of the embedded cluster")
    add_verb(verbs, "programs", _programs, "build the cluster's programs")


def _up(arguments: argparse.Namespace, progress: Progress) -> int:
    del arguments
    cluster = open_cluster()
    cluster.up(progress)
    progress.say(f"The {cluster.flavour} cluster is up after {elapsed(progress.seconds())}. Talk to it with")
    progress.say(f"  export KUBECONFIG={cluster.kubeconfig} PATH={StateFolder.from_env().bin}:$PATH")
    return 0


def _down(arguments: argparse.Namespace, progress: Progress) -> int:
    open_cluster().down(progress, purge=arguments.purge, keep_objects=arguments.keep_objects)
    progress.say(f"The cluster is down after {elapsed(progress.seconds())}.")
    return 0


def _status(arguments: argparse.Namespace, progress: Progress) -> int:
    del progress
    status = open_cluster().status()
    sys.stdout.write((status.to_json() if arguments.output == "json" else report.table(status)) + "\n")
    return 0 if status.healthy else 1


def _preflight(arguments: argparse.Namespace, progress: Progress) -> int:
    del arguments
    cluster, state = open_cluster(), StateFolder.from_env()
    if isinstance(cluster, EmbeddedCluster):
        preflight.require(preflight.embedded_fleet(cluster.layout, state), progress)
    elif cluster.flavour == "kind":
        preflight.require(preflight.fleet(programs.KIND, state), progress)
    return 0


def _packages(arguments: argparse.Namespace, progress: Progress) -> int:
    del arguments
    if packages.missing():
        preflight.require([preflight.root_user()], progress)
    packages.ensure(progress)
    return 0


def _programs(arguments: argparse.Namespace, progress: Progress) -> int:
    del arguments
    state = StateFolder.from_env()
    wanted = programs.KIND if open_cluster().flavour == "kind" else programs.EMBEDDED
    preflight.require(preflight.building(wanted, state.bin), progress)
    programs.build(wanted, state.bin, progress)
    return 0
