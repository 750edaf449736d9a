"""Programs that are run to their end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sunfleet_cluster.commands import follow, run, succeeds
from sunfleet_cluster.errors import ClusterError

FOLLOW = """
import sys
from sunfleet_cluster.commands import follow
follow(["sh", "-c", "echo $$; exec sleep 60"], lambda line: print(line, end="", flush=True))
"""


def test_each_line_is_told_when_it_is_printed(tmp_path: Path) -> None:
    told: list[str] = []

    def heed(line: str) -> bool:
        told.append(line)
        return True

    follow(["sh", "-c", "pwd; echo $WHO >&2"], heed, folder=tmp_path, variables={"WHO": "me"})
    assert told == [f"{tmp_path}\n", "me\n"]


def test_a_failure_shows_the_lines_that_matter() -> None:
    script = "echo compiling; echo it is broken; exit 3"
    with pytest.raises(ClusterError, match=r"failed \(exit 3\):\nit is broken$"):
        follow(["sh", "-c", script], lambda line: "compiling" not in line)


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(ClusterError, match="no-such-program"):
        follow(["no-such-program"], lambda _: True)
    with pytest.raises(ClusterError, match="no-such-program is missing"):
        run("no-such-program")


def test_what_was_started_ends_with_us_even_if_we_are_killed() -> None:
    """Or the next run would work in the same folder as the one of before."""
    with subprocess.Popen([sys.executable, "-c", FOLLOW], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while Path(f"/proc/{child}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_whoever_is_told_to_end_does_not_wait_for_what_was_started() -> None:
    def told_to_end(_: str) -> bool:
        raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        follow(["sh", "-c", "echo begun; exec sleep 60"], told_to_end)
    assert time.monotonic() - began < 30


def test_a_program_that_hangs_does_not_succeed() -> None:
    """A Docker engine that is stuck answers nobody."""
    assert not succeeds("sleep", "60", timeout=0.05)
    assert succeeds("true")
