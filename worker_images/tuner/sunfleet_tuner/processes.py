"""The processes of a run, through accelerate: one, several on a machine, or several machines (torchrun, FSDP2)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from accelerate import Accelerator, PartialState
from accelerate.state import AcceleratorState
from accelerate.utils import FullyShardedDataParallelPlugin, is_tensorboard_available, is_wandb_available

from sunfleet_tuner.errors import TuningError

_TRACKERS = {"tensorboard": is_tensorboard_available, "wandb": is_wandb_available}


def start(precision: str, trackers: Sequence[str], folder: Path, *, sharded: bool = False) -> Accelerator:
    """This process's part; how many there are and how weights are sharded comes from the launcher's environment."""
    if missing := [name for name in trackers if not _TRACKERS[name]()]:
        raise TuningError(f"trackers: {', '.join(missing)} is not installed: pip install {' '.join(missing)}")
    is_main()  # joins the others
    # accelerate keeps its settings for the process's life; a second run here may want another precision.
    AcceleratorState._reset_state()
    return Accelerator(
        fsdp_plugin=_sharding() if sharded else None,
        cpu=_on_cpus(),
        mixed_precision="bf16" if precision == "bf16" else "no",
        log_with=list(trackers) or None,
        project_dir=folder,
    )


def _sharding() -> FullyShardedDataParallelPlugin:
    """Each decoder layer is gathered when its turn comes and given up again."""
    return FullyShardedDataParallelPlugin(
        fsdp_version=2, reshard_after_forward=True, auto_wrap_policy="transformer_based_wrap"
    )


def is_main() -> bool:
    """Whether this process is the one that speaks and writes; joins the others on first use."""
    main: bool = PartialState(cpu=_on_cpus()).is_main_process
    return main


def _on_cpus() -> bool:
    """Without this word accelerate does not look for other processes where it finds no accelerator."""
    return not torch.accelerator.is_available()


def total(accelerator: Accelerator, value: torch.Tensor) -> float:
    """Sum of a scalar over all processes."""
    reduced: torch.Tensor = accelerator.reduce(value.detach().double().to(accelerator.device), reduction="sum")
    return float(reduced)
