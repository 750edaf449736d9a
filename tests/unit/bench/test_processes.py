"""CPU time of a family of processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from processes import cpu_seconds


def process(proc: Path, pid: int, parent: int, user: int, system: int) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    fields = ["S", str(parent), *["0"] * 9, str(user), str(system), "0", "0"]
    (folder / "stat").write_text(f"{pid} (a (strange) name) {' '.join(fields)}\n")


def test_a_family_is_the_process_and_all_below_it(tmp_path: Path) -> None:
    process(tmp_path, 5, 1, 100, 20)
    process(tmp_path, 9, 7, 3, 0)  # listed before its parent by some
    process(tmp_path, 7, 5, 40, 0)
    process(tmp_path, 8, 1, 1000, 1000)
    (tmp_path / "6").mkdir()  # has just ended
    (tmp_path / "meminfo").write_text("")
    assert cpu_seconds(5, tmp_path) == pytest.approx(163 / os.sysconf("SC_CLK_TCK"))


def test_it_counts_the_time_of_this_process() -> None:
    assert cpu_seconds(os.getpid()) > 0
