"""What engines of local suites compute on: a CPU, or the GPU of this machine where ``SUNFLEET_E2E_DEVICE=cuda``. Pure.

Everything of a suite's fleet shares one GPU, so each engine takes a small share of it. float32 keeps comparisons exact;
among the engine's attention kernels for GPUs, the Triton ones know it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, Literal, cast

Device = Literal["cpu", "cuda"]
VARIABLE: Final = "SUNFLEET_E2E_DEVICE"
MEMORY_SHARE: Final = "0.08"  # of the GPU's memory, at most six engines


def chosen(environment: Mapping[str, str] = os.environ) -> Device:
    """Raises :class:`ValueError` for a device that is none."""
    name = environment.get(VARIABLE) or "cpu"
    if name not in ("cpu", "cuda"):
        raise ValueError(f"{VARIABLE}={name!r}: must be cpu or cuda")
    return cast("Device", name)


def engine_flags(device: Device, dtype: str) -> dict[str, str]:
    """Engine arguments that the device wants, without their dashes."""
    if device == "cpu":
        return {}
    backend = {"attention-backend": "TRITON_ATTN"} if dtype == "float32" else {}
    return {"gpu-memory-utilization": MEMORY_SHARE, **backend}
