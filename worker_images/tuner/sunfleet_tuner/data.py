"""Rows of prompt and response token ids, and the padded batches made of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
        """Columns that the row takes; the last response token is only predicted, but it keeps its column."""
        return len(self.prompt) + len(self.response)


@dataclass(frozen=True)
class Batch:
    """``B`` rows padded on the right to width ``T``.

    Padding comes last, so causal attention keeps it out of every real column and no attention mask is needed; positions
    count from 0 in every row, as in serving.
    """

    input_ids: torch.Tensor  # [B, T] int64
    targets: torch.Tensor  # [B, T] int64: the response token that column t predicts, else IGNORED
    prompt_columns: torch.Tensor  # [B, T] bool: columns that belong to the prefill module
    first_loss_column: int  # no row has a loss to the left of it: logits there are never needed
    response_tokens: int

    def to(self, device: torch.device) -> Batch:
        ids, targets, prompt = (value.to(device) for value in (self.input_ids, self.targets, self.prompt_columns))
        return Batch(ids, targets, prompt, self.first_loss_column, self.response_tokens)


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
    first = min(len(row.prompt) for row in rows) - 1
    return Batch(input_ids, targets, prompt_columns, first, sum(len(row.response) for row in rows))


def digest_of_rows(rows: Iterable[Row]) -> str:
    """``sha256:<hex>`` of the token ids, in order."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(f"{list(row.prompt)}{list(row.response)}".encode())
    return f"sha256:{digest.hexdigest()}"
