"""Prefill-only tuning of a LoRA: the loss, and the loop around it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field

from sunfleet_tuner.data import IGNORED, Batch, Row, batches
from sunfleet_tuner.prompt_lora import PromptLora


class TuningConfig(BaseModel):
    """Hyper-parameters of one run; written into the checkpoint as they are."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    rank: int = Field(default=8, ge=1)
    alpha: int = Field(default=16, ge=1)
    learning_rate: float = Field(default=2e-3, gt=0)
    warmup_steps: int = Field(default=5, ge=0)
    steps: int = Field(default=60, ge=1)
    batch_rows: int = Field(default=16, ge=1)
    clip_norm: float = Field(default=1.0, gt=0)
    seed: int = 0


@dataclass(frozen=True)
class Progress:
    """What one optimiser step did; ``loss`` is the mean over the batch's response tokens, in nats."""

    step: int
    steps: int
    loss: float
    seconds: float


def prefill_only_loss(lora: PromptLora, batch: Batch) -> torch.Tensor:
    """Mean cross-entropy over response tokens: a row's first from the prefill module, the others from the decoder."""
    first = batch.first_loss_column
    keep = torch.arange(first, batch.input_ids.shape[1], device=batch.input_ids.device)
    with lora.only_on(batch.prompt_columns):
        logits = lora.model(input_ids=batch.input_ids, logits_to_keep=keep, use_cache=False).logits
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1).float(), batch.targets[:, first:].flatten(), ignore_index=IGNORED
    )


def tune(
    base: Any,
    rows: Sequence[Row],
    config: TuningConfig,
    pad_token_id: int,
    on_step: Callable[[Progress], None] = lambda _: None,
) -> PromptLora:
    """Tune a new LoRA over ``base`` against ``base`` itself as the frozen decoder.

    ``base`` is changed in place only by the LoRA layers put around its own: its tensors keep every bit.
    """
    torch.manual_seed(config.seed)
    lora = PromptLora.over(base, rank=config.rank, alpha=config.alpha)
    lora.model.train()
    stream = batches(rows, config.batch_rows, pad_token_id, config.seed)
    for progress in _optimise(lora, stream, config):
        on_step(progress)
    lora.model.eval()
    return lora


def _optimise(lora: PromptLora, stream: Iterator[Batch], config: TuningConfig) -> Iterator[Progress]:
    parameters = lora.trainable()
    optimiser = torch.optim.AdamW(parameters, lr=config.learning_rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min(1.0, (step + 1) / (config.warmup_steps + 1))
    )
    for step in range(1, config.steps + 1):
        started = time.monotonic()
        loss = prefill_only_loss(lora, next(stream))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, config.clip_norm)
        optimiser.step()
        schedule.step()
        yield Progress(step, config.steps, float(loss.detach()), time.monotonic() - started)
