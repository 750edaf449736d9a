"""Loads what a run starts from, and refuses pairs whose KV could not be read before anything is trained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from sunfleet_api.fingerprint import compare
from sunfleet_api.worker import ResolverReport
from sunfleet_tuner.config import TuneConfig
from sunfleet_tuner.errors import InvalidCheckpoint
from sunfleet_tuner.one_pass import Lora, OnePass, wire
from sunfleet_tuner.weights import describe, load_model, local_folder, quantization_of


@dataclass(frozen=True)
class Sources:
    """Folders of decoder and starting weights (the same one where the decoder is plain), and what they are."""

    decoder: Path
    init: Path
    decoder_report: ResolverReport
    init_report: ResolverReport

    @property
    def own_copy(self) -> bool:
        """Whether the prefill module starts from other weights than the decoder's."""
        return self.init != self.decoder


def find(config: TuneConfig) -> Sources:
    """The checkpoints that ``config`` names; InvalidCheckpoint when they are none, or do not fit each other."""
    decoder = _checkpoint(config.decoder, "decoder")
    init = _checkpoint(config.init, "init") if config.init else decoder
    if quantization_of(init) is not None:
        raise InvalidCheckpoint(
            f"{init} is quantised, and a prefill module has 16-bit weights: name the checkpoint that the decoder was "
            "quantised from in init"
        )
    reports = describe(decoder), describe(init)
    if differences := compare(*reports):
        raise InvalidCheckpoint(
            f"the decoder {decoder} could not read the KV of a module made of {init}: {'; '.join(differences)}"
        )
    return Sources(decoder, init, *reports)


def load(sources: Sources, config: TuneConfig) -> tuple[OnePass, Any]:
    """The wired module, and the decoder whose bits must not change. The adapter's start follows from ``seed``.

    Frozen weights are held in the precision of the run, trainable ones in float32.
    """
    frozen = torch.bfloat16 if config.precision == "bf16" else torch.float32
    decoder = _weights(sources.decoder, frozen)
    prefill = None
    if config.method == "full":
        prefill = _weights(sources.init, torch.float32)
    elif sources.own_copy:
        prefill = _weights(sources.init, frozen)
    torch.manual_seed(config.seed)
    lora = Lora(config.rank, config.alpha, config.lora_targets)
    try:
        return wire(decoder, prefill, config.method, lora=lora, train_embeddings=config.train_embeddings), decoder
    except (TypeError, ValueError) as error:  # another architecture; peft finds none of the targets
        raise InvalidCheckpoint(f"{sources.init} cannot be tuned: {error}") from error


def _weights(folder: Path, dtype: torch.dtype) -> Any:
    try:
        return load_model(folder, dtype)
    except ValueError as error:  # damaged files, a kind of quantisation or an architecture that is not known
        raise InvalidCheckpoint(f"{folder} cannot be loaded: {error}") from error


def load_tokenizer(sources: Sources) -> Any:
    """The decoder's tokenizer, which is also the prefill module's."""
    return AutoTokenizer.from_pretrained(sources.decoder)


def padding(tokenizer: Any) -> int:
    """A token id to fill rows with; which one never matters."""
    token = tokenizer.pad_token_id
    return int(tokenizer.eos_token_id if token is None else token)


def _checkpoint(name: str, setting: str) -> Path:
    try:
        folder = local_folder(name)
        quantization_of(folder)
    except (OSError, ValueError) as error:  # no folder, no config.json, no network; broken JSON
        raise InvalidCheckpoint(f"{setting}: {name} is no checkpoint: {error}") from error
    return folder
