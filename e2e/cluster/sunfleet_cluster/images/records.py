"""Which images were built last: what an installation and the cluster suites use."""

import json
from collections.abc import Mapping
from pathlib import Path

from sunfleet_cluster.errors import ClusterError
from sunfleet_cluster.state import StateFolder, write_atomic


def record_refs(state: StateFolder, refs: Mapping[str, str]) -> None:
    """Remember the images that an installation shall use; others that were recorded before stay."""
    write_atomic(_refs_file(state), json.dumps({**read_refs(state), **refs}, indent=2, sort_keys=True) + "\n")


def read_refs(state: StateFolder) -> dict[str, str]:
    """Recorded images by short name; empty before the first build."""
    try:
        refs: dict[str, str] = json.loads(_refs_file(state).read_text())
    except FileNotFoundError:
        return {}
    return refs


def recorded(state: StateFolder, name: str) -> str:
    """The recorded image `name`; ClusterError when it was never built."""
    try:
        return read_refs(state)[name]
    except KeyError:
        raise ClusterError(f"the image {name} was not built yet: run `make images`") from None


def _refs_file(state: StateFolder) -> Path:
    return state.images / "refs.json"
