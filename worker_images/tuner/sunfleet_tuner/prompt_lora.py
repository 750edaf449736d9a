"""A LoRA that acts on prompt columns only: prefill-only tuning in one causal pass, with one copy of the weights.

Attention has no weights of its own. A pass in which every token-wise layer uses the prefill module's weights for prompt
columns and the decoder's for response columns therefore computes exactly what serving computes: the prefill module's
KV and first token, then the frozen decoder that reads this KV. With LoRA the two modules differ by the delta alone, so
it is enough to zero the delta on response columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import Linear as LoraLinear
from peft.tuners.lora import LoraLayer

# Every token-wise linear layer of a block; embeddings and head stay the decoder's, so the vocabulary stays in common.
TARGETS = "all-linear"


class PromptLora:
    """A base model with one trainable LoRA whose delta can be limited to chosen columns."""

    def __init__(self, model: PeftModel) -> None:
        self.model = model
        self._columns: torch.Tensor | None = None  # [B, T, 1]; None: the delta acts everywhere
        layers = [module for module in model.modules() if isinstance(module, LoraLayer)]
        for layer in layers:
            self._hook(layer)

    @classmethod
    def over(cls, base: Any, *, rank: int, alpha: int) -> PromptLora:
        """Put a fresh LoRA on every linear layer of ``base``, which it freezes. No dropout: serving has none."""
        config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=TARGETS, task_type="CAUSAL_LM")
        return cls(get_peft_model(base, config))

    @contextmanager
    def only_on(self, columns: torch.Tensor) -> Iterator[None]:
        """Within the block the delta acts only where ``columns`` ([B, T] bool) is true."""
        self._columns = columns.unsqueeze(-1)
        try:
            yield
        finally:
            self._columns = None

    def trainable(self) -> list[torch.nn.Parameter]:
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def _hook(self, layer: LoraLayer) -> None:
        # A variant (DoRA, ...) or an embedding does not add B(A(x)) to the base's output: masking B would be wrong.
        if not isinstance(layer, LoraLinear) or layer.lora_variant:
            raise TypeError(f"prefill-only tuning knows plain LoRA on linear layers, not {type(layer).__name__}")
        for up_projection in layer.lora_B.values():
            up_projection.register_forward_hook(self._mask)

    def _mask(self, _module: torch.nn.Module, _inputs: Any, delta: torch.Tensor) -> torch.Tensor:
        return delta if self._columns is None else delta * self._columns
