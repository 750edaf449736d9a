"""Nothing that a test started is left when it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from whole_tree import kill, run

# A child in a session of its own, as torchrun starts its workers, and its number for the test.
_FAMILY = "setsid sleep 600 & echo $!; wait"


def running(pid: int) -> bool:
    """Whether it still does something: what was killed may wait for its parent to ask how it ended."""
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(") ")[2][0] not in "ZX"


def test_a_child_in_a_session_of_its_own_ends_with_its_parent() -> None:
    with subprocess.Popen(["sh", "-c", _FAMILY], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert running(child)
        kill(parent.pid)
        assert parent.wait() == -9
    while running(child):  # a signal is not handled at once; the test's own limit is this loop's
        pass


def test_a_command_that_takes_too_long_is_ended() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run(["sleep", "600"], seconds=0.05)


def test_output_and_exit_code_are_the_commands() -> None:
    done = run([sys.executable, "-c", "import sys; print(1); sys.exit(3)"], seconds=60)
    assert (done.returncode, done.stdout, done.stderr) == (3, "1\n", "")
