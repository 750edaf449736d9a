"""What a process costs, from ``/proc``."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PARENT, _USER, _SYSTEM = 1, 11, 12  # fields of /proc/PID/stat behind the process's name


def cpu_seconds(pid: int, proc: Path = Path("/proc")) -> float:
    """User and system time so far of ``pid`` and its living descendants."""
    stats = {int(folder.name): _stat(folder) for folder in proc.iterdir() if folder.name.isdigit()}
    family, new = {pid}, {pid}
    while new:
        new = {child for child, stat in stats.items() if stat and int(stat[_PARENT]) in new} - family
        family |= new
    return sum(int(stat[_USER]) + int(stat[_SYSTEM]) for one in family if (stat := stats.get(one))) / _TICKS


def _stat(folder: Path) -> list[str] | None:
    """Fields behind the name; ``None``: the process has just ended."""
    try:
        return (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def rss_megabytes(pid: int) -> float:
    """Resident memory now; :class:`ProcessLookupError` when it has ended."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)
