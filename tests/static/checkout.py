"""Which files of the checkout the static checks read."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def tracked_files() -> tuple[Path, ...]:
    """Every file git tracks or would track, relative to the root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return tuple(path for line in sorted(set(listed.splitlines())) if (ROOT / (path := Path(line))).is_file())


def python_files() -> list[Path]:
    return [path for path in tracked_files() if path.suffix == ".py"]
