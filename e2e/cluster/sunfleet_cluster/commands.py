"""Run a program to its end and say well what went wrong."""

import os
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sunfleet_cluster.errors import ClusterError

# Ends a program when the one that started it ends, however that ends: two installers in one folder spoil it.
_TIED = ("setpriv", "--pdeathsig", "KILL", "--")
_LINES_KEPT = 40


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


def follow(
    command: Sequence[str],
    heed: Callable[[str], bool],
    *,
    folder: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> None:
    """Run `command` in `folder` with `variables` set, and give each line it prints to `heed` when it is printed.

    The command ends with us, even if we are killed. ClusterError with the last of the lines for which `heed` said True
    when it fails or is missing.
    """
    kept: deque[str] = deque(maxlen=_LINES_KEPT)
    try:
        process = subprocess.Popen(
            [*_TIED, *command],
            cwd=folder,
            env={**os.environ, **(variables or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except FileNotFoundError:
        raise ClusterError(f"the program {_TIED[0]} is missing: apt-get install util-linux") from None
    with process:
        assert process.stdout is not None
        try:
            kept.extend(line for line in process.stdout if heed(line))
        except BaseException:  # we are told to end, and would wait for its end first
            process.kill()
            raise
    if process.returncode:
        where = f" in {folder}" if folder else ""
        said = "".join(kept).strip()
        raise ClusterError(f"`{_shown(command)}` failed{where} (exit {process.returncode}):\n{said}")


def succeeds(*command: str, timeout: float = 60.0) -> bool:
    """Whether there is such a program and it ends with 0 within ``timeout`` seconds; its output is not looked at."""
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=timeout).returncode == 0
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False


def _shown(command: Sequence[str]) -> str:
    text = " ".join(command)
    return text if len(text) <= 200 else f"{text[:200]}..."
