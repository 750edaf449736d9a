"""Which columns of the batch at hand belong to the prefill module: what one-pass tuning turns on.

Attention has no weights of its own. A pass in which every token-wise layer uses the prefill module's weights for prompt
columns and the decoder's for answer columns therefore computes exactly what serving computes: the prefill module's KV
and first token, then the frozen decoder that reads this KV.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Parts:
    """Rows of a flattened [B * W, ...] tensor: those of the prefill module, the others, and the way back."""

    prompt: torch.Tensor  # [P] int64
    answer: torch.Tensor  # [B * W - P] int64
    order: torch.Tensor  # [B * W] int64: where each row stands in prompt + answer


class Columns:
    """Set before a forward pass, and valid until the next one: recomputation in the backward pass needs it too."""

    def __init__(self) -> None:
        self.mask: torch.Tensor | None = None  # [B, T] bool; None: every column is the prefill module's
        self._parts: dict[int, Parts] = {}
        self._last: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None

    def choose(self, mask: torch.Tensor | None) -> None:
        """``mask`` ([B, T] bool) is true on prompt columns."""
        self.mask = mask
        self._parts = {}
        self._last = None

    def split(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Rows of ``values`` ([B, W, ...], the last W columns): ([P, ...], [B * W - P, ...], the way back [B * W])."""
        if self.mask is None or values.shape[0] != self.mask.shape[0] or values.shape[1] > self.mask.shape[1]:
            shape = None if self.mask is None else tuple(self.mask.shape)
            raise TypeError(
                f"a layer was given {tuple(values.shape)} for a batch of {shape} columns: an architecture that "
                "rearranges tokens outside attention cannot be tuned in one pass"
            )
        width = values.shape[1]
        if width not in self._parts:
            self._parts[width] = _parts(self.mask[:, -width:])
        parts = self._parts[width]
        # Query, key and value projections get the same tensor: cut it once, and keep one copy for the backward pass.
        if self._last is None or self._last[0] is not values:
            flat = values.flatten(0, 1)
            self._last = (values, flat[parts.prompt], flat[parts.answer])
        return self._last[1], self._last[2], parts.order


def _parts(mask: torch.Tensor) -> Parts:
    flat = mask.flatten()
    prompt, answer = flat.nonzero().squeeze(1), (~flat).nonzero().squeeze(1)
    order = torch.empty_like(flat, dtype=torch.long)
    order[torch.cat([prompt, answer])] = torch.arange(len(flat), device=flat.device)
    return Parts(prompt, answer, order)
