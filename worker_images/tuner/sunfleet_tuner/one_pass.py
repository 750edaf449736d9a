"""Prefill-only tuning as one module: a batch in, the sum of the answers' cross-entropies out.

:func:`wire` makes it of a decoder and the weights a prefill module starts from; the optimiser, accelerate and the
checkpoints see nothing but this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from sunfleet_tuner.columns import Columns
from sunfleet_tuner.data import IGNORED, Batch
from sunfleet_tuner.prompt_lora import ALL_LINEAR, add_lora, limit_to_prompt
from sunfleet_tuner.split import split

Method = Literal["lora", "full"]


@dataclass(frozen=True)
class Lora:
    """Size of an adapter; ``targets``: names of linear layers, or all of them."""

    rank: int = 16
    alpha: int = 32
    targets: str | Sequence[str] = ALL_LINEAR


class OnePass(torch.nn.Module):
    """``model`` (prefill module, with the decoder wired in) and the columns that say which of the two computes."""

    def __init__(self, model: Any, columns: Columns) -> None:
        super().__init__()
        self.model = model
        self.columns = columns
        self.idle: tuple[str, ...] = ()  # parameters taken out of training; they belong to the checkpoint all the same

    def forward(
        self, input_ids: torch.Tensor, targets: torch.Tensor, prompt_columns: torch.Tensor | None, first: int
    ) -> torch.Tensor:
        """Sum of cross-entropies in nats; ``first``: no target stands left of this column (:class:`.data.Batch`).

        A row's first response token is predicted by the prefill module, the others by the decoder. Without
        ``prompt_columns`` every column is the prefill module's: ordinary fine-tuning.
        """
        self.columns.choose(prompt_columns)
        logits = self.model(input_ids=input_ids, logits_to_keep=input_ids.shape[1] - first, use_cache=False).logits
        return torch.nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), targets[:, first:].flatten(), ignore_index=IGNORED, reduction="sum"
        )

    def loss_of(self, batch: Batch) -> torch.Tensor:
        """Mean cross-entropy of a batch's response tokens."""
        total: torch.Tensor = self(batch.input_ids, batch.targets, batch.prompt_columns, batch.first_loss_column)
        return total / batch.response_tokens

    def trainable(self) -> dict[str, torch.nn.Parameter]:
        """By name, without ``model.``: as in the checkpoint."""
        return {name: value for name, value in self.model.named_parameters() if value.requires_grad}


def wire(
    decoder: Any, prefill: Any | None, method: Method, *, lora: Lora | None = None, train_embeddings: bool = False
) -> OnePass:
    """A prefill module ready to be tuned against ``decoder``, which is frozen and never changed.

    ``prefill`` holds the weights it starts from; None, for LoRA only, takes the decoder's own, which then exist once.
    Raises TypeError when the architecture or the adapter cannot be tuned in one pass.
    """
    decoder.requires_grad_(requires_grad=False)
    _no_dropout(decoder)
    columns = Columns()
    if method == "lora":
        size = lora or Lora()
        model = add_lora(prefill or decoder, rank=size.rank, alpha=size.alpha, targets=size.targets)
        if prefill is None:
            limit_to_prompt(model, columns)
    elif prefill is None:
        raise ValueError("full weights need a copy of their own to start from")
    else:
        model = prefill.requires_grad_()
        _freeze_vocabulary(model, train=train_embeddings)
    if prefill is not None:
        _no_dropout(prefill)
        split(model, decoder, columns)
    return OnePass(model, columns)


def checkpoint_activations(one_pass: OnePass) -> None:
    """Recompute activations in the backward pass: memory of one block instead of all."""
    model = one_pass.model
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()  # transformers checkpoints in training mode only


def idle_parameters(one_pass: OnePass, batch: Batch) -> list[str]:
    """Names of trainable parameters that ``batch`` gives no gradient, whatever their values.

    Through the KV cache alone that is everything behind the last layer's keys and values; the first token's loss
    reaches the rest. Parameters that start at zero (a LoRA's B) are moved a little meanwhile, as they would silence
    their neighbours.
    """
    parameters = one_pass.trainable()
    zeros = [value for value in parameters.values() if not value.detach().any()]
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in zeros:
            value.copy_(torch.randn(value.shape, generator=generator) * 0.02)
    one_pass.loss_of(batch).backward()
    idle = [name for name, value in parameters.items() if value.grad is None or not value.grad.any()]
    with torch.no_grad():
        for value in zeros:
            value.zero_()
    one_pass.zero_grad(set_to_none=True)
    return idle


def freeze(one_pass: OnePass, names: Sequence[str]) -> None:
    """Take parameters out of training; they keep their values, and their place in what is saved."""
    parameters = one_pass.trainable()
    one_pass.idle = tuple(names)
    for name in names:
        parameters[name].requires_grad_(requires_grad=False)


def _freeze_vocabulary(model: Any, *, train: bool) -> None:
    """Embeddings and head stay the decoder's unless asked for, so that the vocabulary stays in common."""
    for layer in (model.get_input_embeddings(), model.get_output_embeddings()):
        if layer is not None:
            layer.requires_grad_(requires_grad=train)


def _no_dropout(model: torch.nn.Module) -> None:
    """Serving has none, and without it a resumed run needs no state of random generators."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0
