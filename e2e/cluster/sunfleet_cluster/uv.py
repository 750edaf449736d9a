"""The project's uv: find it and turn the lock file into lists of packages."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from sunfleet_cluster.commands import run
from sunfleet_cluster.errors import ClusterError
from sunfleet_cluster.state import StateFolder


def find_uv(state: StateFolder) -> str:
    """Path of uv: on PATH, or the one that the Makefile installs; ClusterError without one."""
    own = state.root / "uv" / "bin" / "uv"
    found = shutil.which("uv") or (str(own) if own.is_file() else None)
    if found is None:
        raise ClusterError("uv is missing: `make venv` installs it, or see docs/install.md")
    return found


def export_requirements(uv: str, project: Path, extras: Sequence[str]) -> str:
    """Locked packages of the project's base and `extras`, with hashes, as a requirements.txt without comments."""
    wanted = [word for extra in extras for word in ("--extra", extra)]
    command = [
        uv,
        "export",
        "--quiet",
        "--frozen",
        "--no-default-groups",
        "--no-emit-project",
        "--no-header",
        "--no-annotate",
    ]
    return run(*command, "--project", str(project), *wanted)
