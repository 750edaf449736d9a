"""A run on disk: checkpoints from which it goes on as if it had never stopped.

``WORK/step-000120/`` holds the trainable tensors, the optimiser and :class:`Record`; it appears whole or not at all.
Nothing random is left to save: there is no dropout, and the order of data follows from the step's number.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import torch
from pydantic import BaseModel
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from sunfleet_tuner.errors import TuningError
from sunfleet_tuner.train import Training

_MODULE, _OPTIMISER, _RECORD = "module.safetensors", "optimizer.pt", "record.json"
_STEP: Final = "step-"
_DDP: Final = "module."  # what distributed data parallelism puts before every name


class Record(BaseModel):
    """Where a run stands, and what it was started with."""

    settings: dict[str, Any]  # what decides the result; another run's checkpoint is never continued
    step: int = 0
    best_step: int = 0
    best_loss: float | None = None  # of validation, in nats
    last_loss: float | None = None
    first_validation: float | None = None  # before the first step
    validations_without_gain: int = 0
    seconds: float = 0.0  # of training, over all its parts
    wandb_run: str = ""  # its id at Weights & Biases, where it is told there


class Checkpoints:
    """The checkpoints of one work folder: the newest, and the best by validation."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def newest(self, settings: dict[str, Any]) -> Record | None:
        """Where to go on, or None for a new run; TuningError when the folder belongs to a run of other settings."""
        found = sorted(self.folder.glob(f"{_STEP}*/{_RECORD}"))
        if not found:
            return None
        record = Record.model_validate_json(found[-1].read_text())
        if changed := sorted(
            name for name in settings | record.settings if settings.get(name) != record.settings.get(name)
        ):
            raise TuningError(
                f"{self.folder} holds a run with other {', '.join(changed)}: delete it to start anew, set them back to "
                "continue it, or name another work folder"
            )
        return record

    def save(self, training: Training, record: Record) -> None:
        """Write ``record.step``; every process has to call it."""
        tensors = module_state(training)
        optimiser = get_optimizer_state_dict(training.one_pass, training.optimiser, options=_full())
        if training.accelerator.is_main_process:
            draft, target = self.folder / f".{_STEP}new", self._at(record.step)
            for leftover in (draft, target):
                shutil.rmtree(leftover, ignore_errors=True)
            draft.mkdir(parents=True)
            save_file(tensors, draft / _MODULE)
            torch.save({"optimiser": optimiser, "scheduler": training.scheduler.state_dict()}, draft / _OPTIMISER)
            (draft / _RECORD).write_text(record.model_dump_json(indent=2))
            draft.rename(target)
            self._forget_all_but(record.step, record.best_step)
        training.accelerator.wait_for_everyone()

    def restore(self, training: Training, step: int) -> None:
        """Put module, optimiser and schedule back to where they were after ``step``."""
        self.restore_module(training, step)
        # Tensors and plain values only: nothing in the file is run.
        saved = torch.load(self._at(step) / _OPTIMISER, map_location="cpu", weights_only=True)
        set_optimizer_state_dict(training.one_pass, training.optimiser, saved["optimiser"], options=_full())
        training.scheduler.load_state_dict(saved["scheduler"])

    def restore_module(self, training: Training, step: int) -> None:
        """The trainable tensors of ``step`` alone."""
        tensors = load_file(self._at(step) / _MODULE)
        set_model_state_dict(training.one_pass, dict(tensors), options=_full(strict=False))

    def _at(self, step: int) -> Path:
        return self.folder / f"{_STEP}{step:08d}"

    def _forget_all_but(self, *steps: int) -> None:
        kept = {self._at(step) for step in steps}
        for folder in self.folder.glob(f"{_STEP}*"):
            if folder not in kept:
                shutil.rmtree(folder, ignore_errors=True)


def module_state(training: Training) -> dict[str, torch.Tensor]:
    """The module's own tensors on the CPU, whole, by name; on the main process where weights are sharded."""
    trained = {name for name, value in training.one_pass.named_parameters() if value.requires_grad}
    wanted = {name.removeprefix(_DDP) for name in trained} | {f"model.{name}" for name in training.idle}
    state = get_model_state_dict(training.one_pass, options=_full(ignore_frozen_params=not training.idle))
    return {name: tensor.contiguous() for name, tensor in state.items() if name in wanted}


def _full(**options: bool) -> StateDictOptions:
    return StateDictOptions(full_state_dict=True, cpu_offload=True, **options)
