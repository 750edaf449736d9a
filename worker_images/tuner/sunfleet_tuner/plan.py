"""The order of training: which rows meet in which step. Pure, and a function of lengths, sizes and seed only.

So a resumed run knows what comes next from the number of its step, and every process knows what the others do.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_WINDOW = 8  # steps whose rows are sorted by length together


@dataclass(frozen=True)
class Sizes:
    """``batch_rows`` rows a step, or as many as fit into ``batch_tokens`` (0: no such limit); ``micro_tokens`` padded
    tokens at most in one forward pass of one process. A longer row goes alone."""

    batch_rows: int
    batch_tokens: int
    micro_tokens: int


def epoch(lengths: Sequence[int], sizes: Sizes, *, seed: int, number: int) -> list[list[int]]:
    """Rows of each step of epoch ``number``, every row once; rows of like length together so that little is padding."""
    rng = random.Random(f"{seed}/{number}")  # noqa: S311 - an order, not a secret
    order = rng.sample(range(len(lengths)), len(lengths))
    steps = []
    for window in _windows(order, lengths, sizes):
        # Sorted within windows only: like lengths meet, yet every epoch pairs rows differently.
        steps += _cut(sorted(window, key=lambda row: lengths[row]), lengths, sizes)
    rng.shuffle(steps)
    return steps


def endless(lengths: Sequence[int], sizes: Sizes, *, seed: int) -> Iterator[list[int]]:
    """Steps of epoch after epoch."""
    number = 0
    while True:
        yield from epoch(lengths, sizes, seed=seed, number=number)
        number += 1


def total_steps(lengths: Sequence[int], sizes: Sizes, *, seed: int, epochs: int) -> int:
    """Steps of that many epochs; their number differs a little between epochs when tokens are counted."""
    return sum(len(epoch(lengths, sizes, seed=seed, number=number)) for number in range(epochs))


def pieces(rows: Sequence[int], lengths: Sequence[int], sizes: Sizes, processes: int) -> list[list[int]]:
    """A step cut into forward passes, as many for each process; process ``p`` takes ``[p::processes]``.

    Pieces at the end may be empty: whoever gets one still has to take part in the step.
    """
    by_length = sorted(rows, key=lambda row: -lengths[row])
    each = -(-len(by_length) // processes)  # no process is left idle while another has two rows
    cut: list[list[int]] = []
    for row in by_length:
        # The longest row of a piece comes first and decides its width.
        if cut and len(cut[-1]) < each and (len(cut[-1]) + 1) * lengths[cut[-1][0]] <= sizes.micro_tokens:
            cut[-1].append(row)
        else:
            cut.append([row])
    return cut + [[] for _ in range(-len(cut) % processes)]


def _windows(order: Sequence[int], lengths: Sequence[int], sizes: Sizes) -> Iterator[Sequence[int]]:
    if not sizes.batch_tokens:
        width = sizes.batch_rows * _WINDOW
    else:
        mean = sum(lengths) / max(1, len(lengths))
        width = max(1, int(sizes.batch_tokens * _WINDOW / max(1.0, mean)))
    for start in range(0, len(order), width):
        yield order[start : start + width]


def _cut(rows: Sequence[int], lengths: Sequence[int], sizes: Sizes) -> list[list[int]]:
    steps: list[list[int]] = [[]]
    tokens = 0
    for row in rows:
        full = tokens + lengths[row] > sizes.batch_tokens if sizes.batch_tokens else len(steps[-1]) >= sizes.batch_rows
        if steps[-1] and full:
            steps.append([])
            tokens = 0
        steps[-1].append(row)
        tokens += lengths[row]
    return steps
