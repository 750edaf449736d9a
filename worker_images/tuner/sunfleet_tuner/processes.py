"""The processes of a run, through accelerate: one, several on a machine, or several machines (torchrun, FSDP2)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import is_tensorboard_available, is_wandb_available

from sunfleet_tuner.errors import TuningError

_TRACKERS = {"tensorboard": is_tensorboard_available, "wandb": is_wandb_available}


def start(precision: str, trackers: Sequence[str], folder: Path) -> Accelerator:
    """This process's part; how many there are and how weights are sharded comes from the launcher's environment."""
    if missing := [name for name in trackers if not _TRACKERS[name]()]:
        raise TuningError(f"trackers: {', '.join(missing)} is not installed: install the extra 'tuner-hub'")
    return Accelerator(
        mixed_precision="bf16" if precision == "bf16" else "no", log_with=list(trackers) or None, project_dir=folder
    )


def total(accelerator: Accelerator, value: torch.Tensor) -> float:
    """Sum of a scalar over all processes."""
    reduced: torch.Tensor = accelerator.reduce(value.detach().double().to(accelerator.device), reduction="sum")
    return float(reduced)
