"""Writes what a run made: weights, ``sunfleet.json``, golden prompts, model card, the course of training."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel

from sunfleet_api.files import ADAPTER_CONFIG_FILE
from sunfleet_api.fingerprint import checkpoint_fingerprint, decoder_digest
from sunfleet_api.golden import GOLDEN_FILE
from sunfleet_tuner import golden
from sunfleet_tuner.card import card
from sunfleet_tuner.checkpoint import CheckpointMeta, DataMeta, Weights, write_adapter, write_meta
from sunfleet_tuner.config import TuneConfig
from sunfleet_tuner.data import Row, digest_of_rows
from sunfleet_tuner.modules import Sources, load_tokenizer
from sunfleet_tuner.monitor import METRICS_FILE, PLOT_FILE, plot
from sunfleet_tuner.reference import Modules, ModuleSpec
from sunfleet_tuner.rows import Rows
from sunfleet_tuner.weights import load_model

_PACKAGES = ("sunfleet", "torch", "transformers", "peft", "accelerate", "safetensors", "compressed-tensors")


def describe_run(config: TuneConfig, sources: Sources, rows: Rows) -> CheckpointMeta:
    """``sunfleet.json`` as far as it is known before the first step."""
    decoder = sources.decoder_report
    return CheckpointMeta(
        method=f"prefill-only-{config.method}",
        tuned_against=decoder_digest(decoder.digest),
        decoder=Weights(name=_name(config.decoder), digest=decoder.digest),
        base=Weights(name=_name(config.init or config.decoder), digest=sources.init_report.digest),
        kv_fingerprint=checkpoint_fingerprint(decoder.config, decoder.tokenizer_hash),
        tokenizer_hash=decoder.tokenizer_hash,
        name=config.title,
        task=config.task,
        hyperparameters=_settings(config),
        data=DataMeta(
            name=_name(config.data),
            digest=digest_of_rows([*rows.training, *rows.validation]),
            training_rows=len(rows.training),
            validation_rows=len(rows.validation),
            dropped=dict(rows.dropped),
        ),
        versions=_versions(),
    )


def write_weights(
    folder: Path, sources: Sources, model: Any, tensors: Mapping[str, torch.Tensor], base_name: str
) -> None:
    """A plain peft adapter, or full weights with their tokenizer, in bfloat16.

    ``tensors`` are the trained ones by :class:`.one_pass.OnePass`'s names; ``model`` is only asked what they belong to.
    """
    own = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
    if isinstance(model, PeftModel):
        write_adapter(folder, model, base_name, own)
        return
    full = load_model(sources.init, torch.bfloat16)
    unknown = full.load_state_dict(own, strict=False).unexpected_keys
    if unknown:
        raise RuntimeError(f"tuned tensors that the checkpoint does not know: {unknown[:3]}")
    full.save_pretrained(folder)
    load_tokenizer(sources).save_pretrained(folder)


def write_golden(folder: Path, sources: Sources, rows: Sequence[Row], count: int, digest: str) -> None:
    """Golden prompts of the weights in ``folder``, as they will be served: read back, rounded to bfloat16."""
    if (folder / ADAPTER_CONFIG_FILE).is_file():
        spec = ModuleSpec(adapter=str(folder), base=str(sources.init) if sources.own_copy else "")
    else:
        spec = ModuleSpec(weights=str(folder))
    golden.write(folder / GOLDEN_FILE, golden.golden_prompts(Modules(sources.decoder), spec, rows, count, digest))


def write_about(folder: Path, meta: CheckpointMeta, work: Path) -> None:
    """``sunfleet.json``, the model card, and the course of training."""
    write_meta(folder, meta)
    (folder / "README.md").write_text(card(meta))
    shutil.copyfile(work / METRICS_FILE, folder / METRICS_FILE)
    plot(work / METRICS_FILE, folder / PLOT_FILE, meta.name)


def _name(source: str) -> str:
    """A hub's name as it is; of a path only the last part, as a checkpoint tells nothing of the machine it is from."""
    path = Path(source).expanduser()
    return path.resolve().name if path.exists() or path.is_absolute() or source.count("/") > 1 else source


def _settings(config: TuneConfig) -> dict[str, Any]:
    named = {
        name: _name(str(value))
        for name in ("decoder", "init", "data", "validation")
        if (value := getattr(config, name))
    }
    return {**config.decisive(), "learning_rate": config.rate, **named}


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
