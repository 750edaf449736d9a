"""The training loop: steps, validation, and nothing about files or people. accelerate carries it over processes."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator
from transformers import get_scheduler

from sunfleet_tuner import plan
from sunfleet_tuner.config import TuneConfig
from sunfleet_tuner.data import Row, collate
from sunfleet_tuner.errors import InvalidData, LossNotFinite, OutOfMemory
from sunfleet_tuner.one_pass import OnePass
from sunfleet_tuner.processes import clip, gradients_stay_here, shard, total


@dataclass(frozen=True)
class Progress:
    """What one optimiser step did; ``loss`` is the mean over the step's response tokens, in nats."""

    step: int
    steps: int
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens: int  # of prompts and responses, over all processes
    seconds: float


class Training:
    """A wired module, its rows and its optimiser. Steps count from 1; what a step does depends on its number alone."""

    def __init__(
        self,
        accelerator: Accelerator,
        one_pass: OnePass,
        rows: Sequence[Row],
        validation: Sequence[Row],
        config: TuneConfig,
        pad_token_id: int,
    ) -> None:
        if not rows:
            raise InvalidData("no row is left to train on: look at the counts of what was dropped, raise max_length")
        self.config = config
        self.accelerator = accelerator
        self.has_validation = bool(validation)
        self.idle = one_pass.idle
        self._rows, self._validation, self._pad = rows, validation, pad_token_id
        self._lengths = [row.length for row in rows]
        self._sizes = plan.Sizes(config.batch_rows, config.batch_tokens, config.micro_tokens)
        self.steps_per_epoch = plan.total_steps(self._lengths, self._sizes, seed=config.seed, epochs=1)
        self.steps = config.max_steps or plan.total_steps(
            self._lengths, self._sizes, seed=config.seed, epochs=config.epochs
        )
        self.one_pass = one_pass
        sharded = config.sharded and accelerator.num_processes > 1
        if sharded:
            shard(one_pass, tuple(getattr(one_pass.model, "_no_split_modules", None) or ()))
        self.optimiser: torch.optim.Optimizer = torch.optim.AdamW(
            one_pass.trainable().values(), lr=config.rate, weight_decay=config.weight_decay, betas=(0.9, 0.999)
        )
        if not sharded:
            self.one_pass, prepared = accelerator.prepare(one_pass, self.optimiser)
            self.optimiser = prepared.optimizer
        self.scheduler: Any = get_scheduler(
            config.schedule,
            self.optimiser,
            num_warmup_steps=int(self.steps * config.warmup_percent / 100),
            num_training_steps=self.steps + 1,  # the last step still learns
        )

    def run(self, after: int = 0) -> Iterator[Progress]:
        """The steps behind step ``after``, one at each turn; TuningError when one cannot be done."""
        order = plan.endless(self._lengths, self._sizes, seed=self.config.seed)
        for step, rows in enumerate(itertools.islice(order, after, self.steps), start=after + 1):
            with _advice(self.config, step):
                yield self._step(step, rows)

    def validate(self) -> float:
        """Mean cross-entropy of the validation rows' response tokens, in nats."""
        rows = self._validation
        cut = plan.pieces(range(len(rows)), [row.length for row in rows], self._sizes, self.accelerator.num_processes)
        summed = torch.zeros((), device=self.accelerator.device)
        with torch.no_grad(), _advice(self.config, 0):
            for piece in self._mine(cut):
                summed += self._loss(rows, piece)
        return total(self.accelerator, summed) / sum(len(row.response) for row in rows)

    def _step(self, step: int, chosen: Sequence[int]) -> Progress:
        started, rate = time.monotonic(), self.scheduler.get_last_lr()[0]
        answers = sum(len(self._rows[index].response) for index in chosen)
        processes = self.accelerator.num_processes
        mine = self._mine(plan.pieces(chosen, self._lengths, self._sizes, processes))
        summed = torch.zeros((), device=self.accelerator.device)
        for place, piece in enumerate(mine, start=1):
            with gradients_stay_here(self.accelerator, self.one_pass, stay=place < len(mine)):
                loss = self._loss(self._rows, piece)
                # Gradients are averaged over processes, but the mean is over the whole step's response tokens.
                self.accelerator.backward(loss * (processes / answers))
            summed += loss.detach()
        mean = total(self.accelerator, summed) / answers
        norm = clip(self._parameters(), self.config.clip_norm)
        if not (math.isfinite(mean) and math.isfinite(norm)):
            raise _not_finite(self.config, step, mean, norm)
        self.optimiser.step()
        self.scheduler.step()
        self.optimiser.zero_grad(set_to_none=True)
        tokens = sum(self._lengths[index] for index in chosen)
        return Progress(step, self.steps, mean, rate, norm, tokens, time.monotonic() - started)

    def _loss(self, rows: Sequence[Row], piece: Sequence[int]) -> torch.Tensor:
        """Summed cross-entropy. A process without rows runs the shortest one for nothing: collectives count calls."""
        chosen = [rows[index] for index in piece] or [min(rows, key=lambda row: row.length)]
        batch = collate(chosen, self._pad).to(self.accelerator.device)
        with self.accelerator.autocast():
            loss: torch.Tensor = self.one_pass(
                batch.input_ids, batch.targets, batch.prompt_columns, batch.first_loss_column
            )
        return loss if piece else loss * 0.0

    def _mine(self, cut: Sequence[list[int]]) -> Sequence[list[int]]:
        return cut[self.accelerator.process_index :: self.accelerator.num_processes]

    def _parameters(self) -> list[torch.nn.Parameter]:
        return [value for group in self.optimiser.param_groups for value in group["params"]]


def _not_finite(config: TuneConfig, step: int, loss: float, norm: float) -> LossNotFinite:
    hint = "" if config.precision == "fp32" else ", or precision: fp32"
    return LossNotFinite(
        f"step {step}: the loss is {loss} and the gradient's norm {norm}, so nothing was learnt from it. Most often "
        f"the learning rate is too high (it is {config.rate:g}): try a third of it{hint}. When it is the very first "
        "step, look for NaN in the weights the run starts from."
    )


@contextmanager
def _advice(config: TuneConfig, step: int) -> Iterator[None]:
    """Turns running out of memory into words."""
    try:
        yield
    except (torch.OutOfMemoryError, RuntimeError, MemoryError) as error:
        if not isinstance(error, torch.OutOfMemoryError | MemoryError) and "can't allocate memory" not in str(error):
            raise
        ways = [f"micro_tokens below {config.micro_tokens} (same result, smaller forward passes)"]
        ways += [] if config.gradient_checkpointing else ["gradient_checkpointing: true"]
        ways += ["method: lora"] if config.method == "full" else [f"a rank below {config.rank}"]
        where = f"step {step}" if step else "validation"
        raise OutOfMemory(f"{where}: out of memory ({error}). Try {'; '.join(ways)}; or more processes.") from error
