"""How a verb is added to `python -m sunfleet_cluster`: a module with `register(verbs)`, named in `__main__`."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from sunfleet_cluster.progress import Progress

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    Verbs = argparse._SubParsersAction

Run = Callable[[argparse.Namespace, Progress], int]


def add_verb(verbs: Verbs, name: str, run: Run, about: str) -> argparse.ArgumentParser:
    """Add the verb `name`; `run` takes its arguments and where to report progress, and returns the exit code."""
    parser = verbs.add_parser(name, help=about, description=about)
    parser.set_defaults(run=run)
    return parser
