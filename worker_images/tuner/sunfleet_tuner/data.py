"""Rows of prompt and response token ids, and the padded batches made of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

IGNORED = -100  # the target of a column that has no loss; torch's cross_entropy skips it


@dataclass(frozen=True)
class Row:
    """One assistant turn. The two halves are tokenised apart, as in serving, so no token spans their border."""

    prompt: tuple[int, ...]
    response: tuple[int, ...]  # ends with the end-of-turn token

    def __post_init__(self) -> None:
        if not self.prompt or not self.response:
            raise ValueError("a row needs at least one prompt token and one response token")

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.response)


@dataclass(frozen=True)
class Batch:
    """``B`` rows padded on the right to width ``T``.

    Padding comes last, so causal attention keeps it out of every real column and no attention mask is needed.
    """

    input_ids: torch.Tensor  # [B, T] int64
    targets: torch.Tensor  # [B, T] int64: the response token that column t predicts, else IGNORED
    prompt_columns: torch.Tensor  # [B, T] bool: columns that belong to the prefill module

    @property
    def first_loss_column(self) -> int:
        """No row has a loss to the left of this column: logits there are never needed."""
        return int((self.targets != IGNORED).any(dim=0).nonzero()[0])


def chat_row(tokenizer: Any, messages: Sequence[Mapping[str, str]], answer: str) -> Row:
    """A row whose prompt is the chat template with the assistant's turn opened, and whose response closes that turn."""
    prompt = tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=True, return_dict=False)
    response = tokenizer.encode(answer, add_special_tokens=False)
    return Row(tuple(prompt), (*response, tokenizer.eos_token_id))


def collate(rows: Sequence[Row], pad_token_id: int) -> Batch:
    """Pad rows to one batch. Column t holds token t; the last prompt column predicts the first response token."""
    width = max(row.length for row in rows)
    input_ids = torch.full((len(rows), width), pad_token_id, dtype=torch.long)
    targets = torch.full((len(rows), width), IGNORED, dtype=torch.long)
    prompt_columns = torch.zeros((len(rows), width), dtype=torch.bool)
    for index, row in enumerate(rows):
        border = len(row.prompt)
        input_ids[index, : row.length] = torch.tensor(row.prompt + row.response)
        targets[index, border - 1 : row.length - 1] = torch.tensor(row.response)
        prompt_columns[index, :border] = True
    return Batch(input_ids, targets, prompt_columns)


def batches(rows: Sequence[Row], size: int, pad_token_id: int, seed: int) -> Iterator[Batch]:
    """Batches without end: every epoch shuffled anew, rows of like length together so that little is padding.

    The order depends on ``rows``, ``size`` and ``seed`` only. A last incomplete batch of an epoch is left out.
    """
    if len(rows) < size:
        raise ValueError(f"{len(rows)} rows do not fill one batch of {size}")
    rng = random.Random(seed)  # noqa: S311 - an order, not a secret
    while True:
        order = rng.sample(range(len(rows)), len(rows))
        # Sorted within windows of eight batches: like lengths meet, yet every epoch pairs rows differently.
        window = size * 8
        groups = [
            group
            for start in range(0, len(order), window)
            for group in _split(sorted(order[start : start + window], key=lambda i: rows[i].length), size)
        ]
        rng.shuffle(groups)
        for group in groups:
            yield collate([rows[i] for i in group], pad_token_id)


def _split(indices: Sequence[int], size: int) -> list[Sequence[int]]:
    return [indices[i : i + size] for i in range(0, len(indices) - size + 1, size)]
