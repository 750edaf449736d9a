"""Command line: `python -m sunfleet_cluster VERB`; `--help` lists the verbs."""

import argparse
import sys

from pydantic import ValidationError

from sunfleet_cluster import cluster_verbs, fleet_verbs
from sunfleet_cluster.errors import ClusterError
from sunfleet_cluster.progress import Progress

MODULES = (cluster_verbs, fleet_verbs)


def main(arguments: list[str] | None = None) -> int:
    """Run a verb; 0 when it did its work, 1 when it could not and said why, 2 for wrong usage, 130 when interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m sunfleet_cluster", description="The cluster that the fleet runs on."
    )
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    for module in MODULES:
        module.register(verbs)
    chosen = parser.parse_args(arguments)
    try:
        code: int = chosen.run(chosen, Progress())
    except ClusterError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except ValidationError as error:
        problems = "\n".join(f"  {'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        sys.stderr.write(f"error: the environment (SUNFLEET_*) has wrong settings:\n{problems}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; run the same verb again to go on\n")
        return 130
    return code


if __name__ == "__main__":
    raise SystemExit(main())
