"""The recipe: a frozen decoder and a dataset in, a prefill module out.

    sunfleet tune --decoder BASE --data train.jsonl --output maths
    torchrun --nproc-per-node 8 -m sunfleet_tuner tune --config maths.yaml

Read :func:`tune` from top to bottom: that is all of it. Killed at any point, the same command goes on where it was.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from rich.console import Console
from transformers import GenerationConfig

from sunfleet_api.files import META_FILE
from sunfleet_tuner import artifact
from sunfleet_tuner.checkpoint import CheckpointMeta, read_meta
from sunfleet_tuner.config import TuneConfig
from sunfleet_tuner.data import collate
from sunfleet_tuner.errors import InvalidData
from sunfleet_tuner.files import refuse_foreign, whole_folder
from sunfleet_tuner.modules import Sources, find, load, load_tokenizer, padding
from sunfleet_tuner.monitor import Monitor
from sunfleet_tuner.one_pass import OnePass, checkpoint_activations, freeze, idle_parameters
from sunfleet_tuner.processes import sharded_parameters, start
from sunfleet_tuner.rows import Rows, Tokens, make_rows
from sunfleet_tuner.sources import records
from sunfleet_tuner.state import Checkpoints, Record, module_state
from sunfleet_tuner.train import Training
from sunfleet_tuner.weights import tensors_digest


@dataclass(frozen=True)
class Outcome:
    """What :func:`tune` made; ``made`` is false when the very same module was there already."""

    meta: CheckpointMeta
    made: bool


def tune(config: TuneConfig, console: Console) -> Outcome:
    """Tune as ``config`` says and write the module to its output. Raises TuningError, which says how to mend it."""
    accelerator = start(config.precision, config.trackers, config.runs_folder)
    sources = find(config)
    tokenizer = load_tokenizer(sources)
    rows = read_rows(config, sources, tokenizer)
    meta = artifact.describe_run(config, sources, rows)
    if _is_there(config.output, meta):
        return Outcome(read_meta(config.output), made=False)
    refuse_foreign(config.output)

    meta = train_module(config, sources, rows, meta, accelerator, padding(tokenizer), console)
    if accelerator.is_main_process:
        publish(config, sources, rows, meta)
        shutil.rmtree(config.work_folder)
    return Outcome(meta, made=True)


def train_module(
    config: TuneConfig,
    sources: Sources,
    rows: Rows,
    meta: CheckpointMeta,
    accelerator: Accelerator,
    pad_token_id: int,
    console: Console,
) -> CheckpointMeta:
    """Train, prove the decoder unchanged, leave the weights in the work folder; ``meta`` with what came out."""
    one_pass, decoder = load(sources, config)
    before = tensors_digest(decoder)
    if config.gradient_checkpointing:
        checkpoint_activations(one_pass)
    probe = collate([min(rows.training, key=lambda row: row.length)], pad_token_id)
    with torch.autocast("cpu", torch.bfloat16, enabled=config.precision == "bf16"):
        idle = idle_parameters(one_pass, probe)
    freeze(one_pass, idle)
    training = Training(accelerator, one_pass, rows.training, rows.validation, config, pad_token_id)

    checkpoints = Checkpoints(config.work_folder)
    settings = {**config.decisive(), "data_digest": meta.data.digest, "decoder_digest": meta.tuned_against}
    record = checkpoints.newest(settings) or Record(settings=settings)
    with Monitor(
        accelerator, config, training.steps, console, after=record.step, wandb_run=record.wandb_run
    ) as monitor:
        record = record.model_copy(update={"wandb_run": monitor.wandb_run})
        _introduce(monitor, meta, one_pass, idle, training)
        if record.step:
            checkpoints.restore(training, record.step)
            monitor.say(f"going on behind step {record.step}")
        record = run(training, checkpoints, record, monitor)
        if record.best_step not in {0, record.step}:
            checkpoints.restore_module(training, record.best_step)
            monitor.say(f"taking the weights of step {record.best_step}, the best by validation")
        tensors = module_state(training)

    after = tensors_digest(decoder)
    if after != before:
        raise RuntimeError(f"the decoder changed in training ({before} -> {after}): nothing is written")
    if accelerator.is_main_process:
        folder = _weights_folder(config)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        artifact.write_weights(folder, sources, one_pass.model, tensors, meta.base.name)
    return meta.model_copy(update={"decoder_tensors": after, "frozen": idle, "metrics": _metrics(record)})


def publish(config: TuneConfig, sources: Sources, rows: Rows, meta: CheckpointMeta) -> None:
    """Put the module into its output folder, whole, with golden prompts and everything that tells about it."""
    with whole_folder(config.output) as draft:
        shutil.copytree(_weights_folder(config), draft, dirs_exist_ok=True)
        if config.golden_prompts:
            prompts = rows.validation or rows.training
            artifact.write_golden(draft, sources, prompts, config.golden_prompts, meta.tuned_against)
        artifact.write_about(draft, meta, config.work_folder)


def run(training: Training, checkpoints: Checkpoints, record: Record, monitor: Monitor) -> Record:
    """The remaining steps, with validations and checkpoints; where the run stands after the last of them."""
    config, validates = training.config, training.has_validation
    eval_steps = config.eval_steps or training.steps_per_epoch
    save_steps = config.save_steps or eval_steps
    if validates and record.step == 0:
        record = record.model_copy(update={"first_validation": training.validate()})
        monitor.validated(0, record.first_validation or 0.0, best=False)
    for done in training.run(after=record.step) if not _given_up(config, record) else ():
        record = record.model_copy(update={"step": done.step, "seconds": record.seconds + done.seconds})
        monitor.step(done)
        last = done.step == training.steps
        if validates and (last or done.step % eval_steps == 0):
            record = judge(record, training.validate())
            monitor.validated(record.step, record.last_loss or 0.0, best=record.best_step == record.step)
        if last or done.step % save_steps == 0 or _given_up(config, record):
            checkpoints.save(training, record)
        if _given_up(config, record):
            monitor.say(f"stopping at step {done.step}: {config.patience} validations without a better one")
            break
    return record


def judge(record: Record, loss: float) -> Record:
    """The record after a validation."""
    if record.best_loss is None or loss < record.best_loss:
        gain = {"best_loss": loss, "best_step": record.step, "validations_without_gain": 0}
    else:
        gain = {"validations_without_gain": record.validations_without_gain + 1}
    return record.model_copy(update={**gain, "last_loss": loss})


def read_rows(config: TuneConfig, sources: Sources, tokenizer: Any) -> Rows:
    """Training and validation rows, tokenised as serving does."""
    tokens = Tokens(tokenizer, _stops(sources.decoder))
    percent = 0.0 if config.validation else config.validation_percent
    rows = make_rows(
        records(config.data, config.split, subset=config.subset), tokens, form=config.format,
        max_length=config.max_length, validation_percent=percent, seed=config.seed, name=config.data,
    )  # fmt: skip
    if config.validation:
        held_out = records(config.validation, "validation", "test", subset=config.subset_of_validation)
        other = make_rows(held_out, tokens, form=config.format, max_length=config.max_length, name=config.validation)
        rows = Rows(rows.training, other.training, rows.dropped + other.dropped)
    if not rows.training:
        dropped = ", ".join(f"{count} {why}" for why, count in rows.dropped.items()) or "the dataset is empty"
        raise InvalidData(f"{config.data} has no row to train on: {dropped}")
    if config.patience and not rows.validation:
        raise InvalidData(f"{config.data} is too small to keep rows for validation: set validation, or patience: 0")
    return rows


def _is_there(output: Path, meta: CheckpointMeta) -> bool:
    """Whether an earlier run with the same settings, data and weights has finished: a Job may start again after it."""
    if not (output / META_FILE).is_file():
        return False
    decisive = {"hyperparameters", "data", "tuned_against", "base"}
    return read_meta(output).model_dump(include=decisive) == meta.model_dump(include=decisive)


def _weights_folder(config: TuneConfig) -> Path:
    return config.work_folder / "module"


def _given_up(config: TuneConfig, record: Record) -> bool:
    return bool(config.patience) and record.validations_without_gain >= config.patience


def _stops(decoder: Path) -> list[int]:
    """Token ids that end an answer by the generation config, as engines take them."""
    if not (decoder / "generation_config.json").is_file():
        return []
    eos = GenerationConfig.from_pretrained(decoder).eos_token_id
    return eos if isinstance(eos, list) else [eos] if eos is not None else []


def _introduce(monitor: Monitor, meta: CheckpointMeta, one_pass: OnePass, idle: list[str], training: Training) -> None:
    counts = [sum(value.numel() for value in group) for group in (one_pass.trainable().values(), one_pass.parameters())]
    if spread := sharded_parameters(training.one_pass):
        monitor.say(f"{spread} tensors are spread over {training.accelerator.num_processes} processes")
    monitor.say(f"training {counts[0]:,} of {counts[1]:,} parameters, {training.steps} steps")
    monitor.say(f"{meta.data.training_rows} rows to train on, {meta.data.validation_rows} to validate")
    for reason, count in meta.data.dropped.items():
        monitor.say(f"{count} rows left out: {reason}")
    if idle:
        monitor.say(f"{len(idle)} parameters can get no gradient and stay as they are: {', '.join(idle)}")


def _metrics(record: Record) -> dict[str, float]:
    known = {
        "steps": record.step,
        "best_step": record.best_step,
        "validation_loss_before": record.first_validation,
        "validation_loss": record.best_loss,
        "training_seconds": record.seconds,
    }
    return {name: round(value, 6) for name, value in known.items() if value is not None}
