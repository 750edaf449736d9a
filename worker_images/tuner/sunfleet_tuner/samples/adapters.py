"""Tunes the sample adapters: a prefill module per task of :mod:`sunfleet_tuner.samples.tasks`, minutes each."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from sunfleet_tuner.checkpoint import CheckpointMeta, save_adapter, weights_digest, write_meta
from sunfleet_tuner.data import chat_row
from sunfleet_tuner.reference import Modules
from sunfleet_tuner.samples.evaluate import evaluate
from sunfleet_tuner.samples.tasks import TASKS, split
from sunfleet_tuner.train import Progress, TuningConfig, tune

BASE_NAME = "SmolLM2-135M-Instruct"
TRAINING_ROWS = 2000
HELD_OUT_ROWS = 128
DATA_SEED = 0
CONFIGS = {
    "arith": TuningConfig(steps=60, batch_rows=16),
    "toolcall": TuningConfig(steps=40, batch_rows=8),
}


def make_adapter(name: str, base: Path, target: Path, say: Callable[[str], None]) -> None:
    """Tune the adapter of task ``name`` against the checkpoint in ``base``, measure it, write both to ``target``."""
    task, config = TASKS[name], CONFIGS[name]
    training, held_out = split(task, TRAINING_ROWS, HELD_OUT_ROWS, DATA_SEED)
    tokenizer = AutoTokenizer.from_pretrained(base)
    rows = [chat_row(tokenizer, example.messages, example.answer) for example in training]
    losses: list[float] = []

    def on_step(progress: Progress) -> None:
        losses.append(progress.loss)
        say(f"{name}: step {progress.step}/{progress.steps}, loss {progress.loss:.3f}, {progress.seconds:.1f} s")

    started = time.monotonic()
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    lora = tune(model, rows, config, tokenizer.pad_token_id, on_step)
    last = losses[-10:]
    meta = CheckpointMeta(
        tuned_against=weights_digest(base),
        task=task.summary,
        hyperparameters={**config.model_dump(), "training_rows": TRAINING_ROWS, "data_seed": DATA_SEED},
        metrics={"final_loss": round(sum(last) / len(last), 4), "seconds": round(time.monotonic() - started)},
    )
    save_adapter(lora.model, target, meta, BASE_NAME)
    # Measured as it will be served: read back from disk, rounded to bfloat16.
    accuracy = evaluate(Modules(base), target, task, held_out, say)
    write_meta(target, meta.model_copy(update={"accuracy": accuracy}))
