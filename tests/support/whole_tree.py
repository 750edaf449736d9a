"""Commands that start processes of their own: all of them end with the test, also when it is ended by its time limit.

``torchrun`` gives each worker a session, so no signal to a group of processes reaches them.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any


def run(command: Sequence[str | Path], *, seconds: float, **options: Any) -> subprocess.CompletedProcess[str]:
    """What ``command`` printed and its exit code; TimeoutExpired after ``seconds``. Whatever ends this, ends it all."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, **options
    ) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except BaseException:  # the limit of the whole test, too, and Ctrl-C
            kill(process.pid)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def kill(root: int) -> None:
    """End a process and everything that descends from it."""
    # From the top, and stopped first: a parent that saw its child die could start another.
    tree = []
    for pid in _family(root):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            tree.append(pid)
    for pid in tree:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _family(root: int) -> Iterator[int]:
    """``root``, then its descendants; each is looked up only after the one before it was dealt with."""
    yield root
    with suppress(OSError):  # it has just gone
        for thread in Path(f"/proc/{root}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield from _family(int(child))
