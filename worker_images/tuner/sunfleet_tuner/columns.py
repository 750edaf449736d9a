"""Which columns of the batch at hand belong to the prefill module: what one-pass tuning turns on.

Attention has no weights of its own. A pass in which every token-wise layer uses the prefill module's weights for prompt
columns and the decoder's for answer columns therefore computes exactly what serving computes: the prefill module's KV
and first token, then the frozen decoder that reads this KV.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any, Final

import torch

# Between the projections of queries and of values stand, at most, norms of heads.
_REMEMBERED: Final = 4


@dataclass(frozen=True)
class Parts:
    """Rows of a flattened [B * W, ...] tensor: those of the prefill module, the others, and the way back."""

    prompt: torch.Tensor  # [P] int64
    answer: torch.Tensor  # [B * W - P] int64
    order: torch.Tensor  # [B * W] int64: where each row stands in prompt + answer


@dataclass(frozen=True)
class _Known:
    """A tensor, for as long as somebody else has it, and its rows."""

    whole: weakref.ref[torch.Tensor]
    prompt: torch.Tensor
    answer: torch.Tensor


class Columns:
    """Set before a forward pass, and valid until the next one: recomputation in the backward pass needs it too."""

    def __init__(self) -> None:
        self.mask: torch.Tensor | None = None  # [B, T] bool; None: every column is the prefill module's
        self._parts: dict[int, Parts] = {}
        self._known: list[_Known] = []  # what was split or joined last, the newest first

    def choose(self, mask: torch.Tensor | None) -> None:
        """``mask`` ([B, T] bool) is true on prompt columns."""
        self.mask = mask
        self._parts = {}
        self._known = []

    def split(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows of ``values`` ([B, W, ...], the last W columns): the prefill module's [P, ...], the others' [A, ...].

        A tensor that was split or joined a moment ago is not cut again: query, key and value projections get the same
        one, and it comes out of a norm.
        """
        known = next((one for one in self._known if one.whole() is values), None)
        known = known or _Known(weakref.ref(values), *_Split.apply(values, self._of(values)))
        self._remember(known)
        return known.prompt, known.answer

    def join(self, prompt: torch.Tensor, answer: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """The rows of :meth:`split` back in the places that they had in ``like``: [B, W, ...]."""
        joined: torch.Tensor = _Join.apply(prompt, answer, self._of(like)).unflatten(0, like.shape[:2])
        # Not those of token ids: checkpointing asks for a gradient of the embeddings, which their parts would not have.
        if like.is_floating_point():
            self._remember(_Known(weakref.ref(joined), prompt, answer))
        return joined

    def _remember(self, known: _Known) -> None:
        alive = (one for one in self._known if one is not known and one.whole() is not None)
        self._known = [known, *alive][:_REMEMBERED]

    def _of(self, values: torch.Tensor) -> Parts:
        if self.mask is None or values.shape[0] != self.mask.shape[0] or values.shape[1] > self.mask.shape[1]:
            shape = None if self.mask is None else tuple(self.mask.shape)
            raise TypeError(
                f"a layer was given {tuple(values.shape)} for a batch of {shape} columns: an architecture that "
                "rearranges tokens outside attention cannot be tuned in one pass"
            )
        width = values.shape[1]
        if width not in self._parts:
            self._parts[width] = _parts(self.mask[:, -width:])
        return self._parts[width]


class _Split(torch.autograd.Function):
    """[B, W, ...] -> [P, ...], [A, ...]. Every row goes to one place, so the gradient is a look-up as well: torch's own
    gradient of indexing adds row by row, which costs more than the matrices of a small model."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, parts: Parts) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.parts, ctx.shape = parts, values.shape
        flat = values.flatten(0, 1)
        return flat.index_select(0, parts.prompt), flat.index_select(0, parts.answer)

    @staticmethod
    def backward(ctx: Any, prompt: torch.Tensor, answer: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _joined(prompt, answer, ctx.parts).view(ctx.shape), None


class _Join(torch.autograd.Function):
    """[P, ...], [A, ...] -> [B * W, ...]; the inverse of :class:`_Split`."""

    @staticmethod
    def forward(ctx: Any, prompt: torch.Tensor, answer: torch.Tensor, parts: Parts) -> torch.Tensor:
        ctx.parts = parts
        return _joined(prompt, answer, parts)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None]:
        wanted = ctx.needs_input_grad
        prompt = gradient.index_select(0, ctx.parts.prompt) if wanted[0] else None
        answer = gradient.index_select(0, ctx.parts.answer) if wanted[1] else None
        return prompt, answer, None


def _joined(prompt: torch.Tensor, answer: torch.Tensor, parts: Parts) -> torch.Tensor:
    return torch.cat([prompt, answer]).index_select(0, parts.order)


def _parts(mask: torch.Tensor) -> Parts:
    flat = mask.flatten()
    prompt, answer = flat.nonzero().squeeze(1), (~flat).nonzero().squeeze(1)
    order = torch.empty_like(flat, dtype=torch.long)
    order[torch.cat([prompt, answer])] = torch.arange(len(flat), device=flat.device)
    return Parts(prompt, answer, order)
