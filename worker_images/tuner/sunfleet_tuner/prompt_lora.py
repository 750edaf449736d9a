"""A LoRA that acts on prompt columns only: prefill-only tuning with one copy of the weights.

Where the adapter's base is the decoder itself, the two modules differ by the delta alone, so it is enough to zero the
delta on answer columns: the memory of ordinary LoRA.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import Linear as LoraLinear
from peft.tuners.lora import LoraLayer

from sunfleet_tuner.columns import Columns

# Every token-wise linear layer of a block; embeddings and head stay the decoder's, so the vocabulary stays in common.
ALL_LINEAR: Final = "all-linear"


def add_lora(base: Any, *, rank: int, alpha: int, targets: str | Sequence[str] = ALL_LINEAR) -> PeftModel:
    """Put a fresh LoRA on linear layers of ``base``, which it freezes. No dropout: serving has none."""
    wanted = targets if isinstance(targets, str) else list(targets)
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=wanted, task_type="CAUSAL_LM")
    model = get_peft_model(base, config)
    check_plain(model)
    return model


def check_plain(model: PeftModel) -> None:
    """Raises TypeError for an adapter that does not just add B(A(x)): a variant (DoRA, ...), a bias, an embedding's."""
    for layer in model.modules():
        if not isinstance(layer, LoraLayer):
            continue
        if not isinstance(layer, LoraLinear) or layer.lora_variant or any(layer.lora_bias.values()):
            raise TypeError(f"prefill-only tuning knows plain LoRA on linear layers, not {type(layer).__name__}")


def limit_to_prompt(model: PeftModel, columns: Columns) -> None:
    """From now on every delta of ``model`` acts on the prompt columns of ``columns`` alone."""
    check_plain(model)

    def mask(_module: torch.nn.Module, _inputs: Any, hidden: torch.Tensor) -> torch.Tensor:
        return hidden if columns.mask is None else hidden * columns.mask.unsqueeze(-1)

    for layer in model.modules():
        if isinstance(layer, LoraLayer):
            # B has no bias, so B of nothing is nothing; between the two there are ``rank`` numbers a token to zero.
            for down_projection in layer.lora_A.values():
                down_projection.register_forward_hook(mask)
