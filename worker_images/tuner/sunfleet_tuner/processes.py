"""The processes of a run, through accelerate: one, several on a machine, or several machines (torchrun, FSDP2)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, PartialState
from accelerate.state import AcceleratorState
from accelerate.utils import is_tensorboard_available, is_wandb_available
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from sunfleet_tuner.errors import TuningError

_TRACKERS = {"tensorboard": is_tensorboard_available, "wandb": is_wandb_available}


def start(precision: str, trackers: Sequence[str], folder: Path) -> Accelerator:
    """This process's part; how many there are and how weights are sharded comes from the launcher's environment."""
    if missing := [name for name in trackers if not _TRACKERS[name]()]:
        raise TuningError(f"trackers: {', '.join(missing)} is not installed: pip install {' '.join(missing)}")
    is_main()  # joins the others
    # accelerate keeps its settings for the process's life; a second run here may want another precision.
    AcceleratorState._reset_state()
    return Accelerator(
        cpu=_on_cpus(),
        mixed_precision="bf16" if precision == "bf16" else "no",
        log_with=list(trackers) or None,
        project_dir=folder,
    )


def shard(module: torch.nn.Module, layers: Sequence[str]) -> None:
    """Spread all weights over the processes (FSDP2); modules of the classes ``layers`` are gathered when their turn
    comes and given up again. torch's own call: accelerate's takes no CPUs, where this is tested."""
    for part in [part for part in module.modules() if type(part).__name__ in layers]:
        fully_shard(part)
    fully_shard(module)


def gradients_stay_here(
    accelerator: Accelerator, module: torch.nn.Module, *, stay: bool
) -> AbstractContextManager[Any]:
    """Within a step gradients add up locally; they are exchanged with the last piece."""
    if isinstance(module, FSDPModule):
        module.set_requires_gradient_sync(not stay)
        return nullcontext()
    return accelerator.no_sync(module) if stay else nullcontext()


def clip(parameters: Sequence[torch.nn.Parameter], largest: float) -> float:
    """Bound the gradients' norm over all processes; what it was."""
    norm = torch.nn.utils.clip_grad_norm_(parameters, largest)
    return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)


def sharded_parameters(module: torch.nn.Module) -> int:
    """Of how many parameters this process holds a part only."""
    return sum(isinstance(value, DTensor) for value in module.parameters())


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
