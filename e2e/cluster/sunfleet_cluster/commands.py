"""Run a program to its end and say well what went wrong."""

import subprocess
from collections.abc import Sequence

from sunfleet_cluster.errors import ClusterError


def run(*command: str, stdin: str | None = None, timeout: float | None = 120.0) -> str:
    """Standard output of `command`; ClusterError with its error output when it fails, is missing, or takes over
    `timeout` seconds.
    """
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=timeout)
    except FileNotFoundError:
        raise ClusterError(f"the program {command[0]} is missing") from None
    except subprocess.TimeoutExpired:
        raise ClusterError(f"`{_shown(command)}` did not end within {timeout:.0f} s") from None
    if done.returncode != 0:
        raise ClusterError(
            f"`{_shown(command)}` failed (exit {done.returncode}): {(done.stderr or done.stdout).strip()}"
        )
    return done.stdout


def succeeds(*command: str) -> bool:
    """Whether there is such a program and it ends with 0; its output is not looked at."""
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def _shown(command: Sequence[str]) -> str:
    text = " ".join(command)
    return text if len(text) <= 200 else f"{text[:200]}..."
