"""Tunes the sample adapters: a prefill module per task of :mod:`sunfleet_tuner.samples.tasks`, minutes each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from sunfleet_tuner.checkpoint import CheckpointMeta, checkpoint_digest, read_meta, save_adapter, write_meta
from sunfleet_tuner.data import chat_row
from sunfleet_tuner.reference import Modules
from sunfleet_tuner.samples.evaluate import evaluate
from sunfleet_tuner.samples.tasks import TASKS, Example, split
from sunfleet_tuner.train import Progress, TuningConfig, tune

BASE_NAME = "SmolLM2-135M-Instruct"
TRAINING_ROWS = 2000
DATA_SEED = 0


@dataclass(frozen=True)
class Recipe:
    """How one sample adapter is made and measured."""

    config: TuningConfig
    held_out_rows: int


RECIPES: Final = {
    "arith": Recipe(TuningConfig(steps=60, batch_rows=16), held_out_rows=128),
    "toolcall": Recipe(TuningConfig(steps=40, batch_rows=8), held_out_rows=64),
}


def make_adapter(name: str, base: Path, target: Path, say: Callable[[str], None]) -> None:
    """Tune the adapter of task ``name`` against the checkpoint in ``base`` and write it to ``target``."""
    config = RECIPES[name].config
    tokenizer = AutoTokenizer.from_pretrained(base)
    rows = [chat_row(tokenizer, example.messages, example.answer) for example in _examples(name)[0]]
    losses: list[float] = []

    def on_step(progress: Progress) -> None:
        losses.append(progress.loss)
        say(f"{name}: step {progress.step}/{progress.steps}, loss {progress.loss:.3f}, {progress.seconds:.1f} s")

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    lora = tune(model, rows, config, tokenizer.pad_token_id, on_step)
    last = losses[-10:]
    meta = CheckpointMeta(
        tuned_against=checkpoint_digest(base),
        task=TASKS[name].summary,
        hyperparameters={**config.model_dump(), "training_rows": TRAINING_ROWS, "data_seed": DATA_SEED},
        metrics={"first_loss": round(losses[0], 4), "mean_loss_of_last_10_steps": round(sum(last) / len(last), 4)},
    )
    save_adapter(lora.model, target, meta, BASE_NAME)


def measure_adapter(name: str, base: Path, adapter: Path, say: Callable[[str], None]) -> None:
    """Accuracy on held-out rows, written into the adapter's ``sunfleet.json``.

    Measured as it will be served: read back from disk, rounded to bfloat16.
    """
    accuracy = evaluate(Modules(base), adapter, TASKS[name], _examples(name)[1], say)
    write_meta(adapter, read_meta(adapter).model_copy(update={"accuracy": accuracy}))


def _examples(name: str) -> tuple[list[Example], list[Example]]:
    return split(TASKS[name], TRAINING_ROWS, RECIPES[name].held_out_rows, DATA_SEED)
