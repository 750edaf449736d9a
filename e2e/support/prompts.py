"""Prompts of any length that a running fleet has not seen, so that "cold" is true."""

from __future__ import annotations

import random
from collections.abc import Sequence

from support.reference import Reference

_SENTENCES = (
    "The train to Prague leaves at nine and arrives in the evening.",
    "She counted 17 apples, gave 5 away, and bought 23 more.",
    "Set the table for six people on Friday and call Anna.",
    "Rain is expected in Oslo, but Lisbon stays warm and dry.",
    "He changed 250 euros into pounds before the long journey.",
    "What is 48 plus 36, and how many minutes are two hours?",
)
_ORDINARY_IDS = range(1_000, 40_000)  # of the sample base's tokenizer: no special tokens


class Prompts:
    """Sentences in changing order after two random tokens; equal seeds give equal prompts."""

    def __init__(self, sentences: Sequence[Sequence[int]], seed: int) -> None:
        self.seed = seed
        self._rng = random.Random(seed)  # noqa: S311 - test data
        self._sentences = [list(ids) for ids in sentences]

    @classmethod
    def of(cls, reference: Reference, seed: int) -> Prompts:
        """In the token ids of the reference's tokenizer."""
        asked = [reference.answer({}, f" {text}", max_tokens=1) for text in _SENTENCES]
        return cls([answer.prompt_token_ids for answer in asked], seed)

    def new(self, length: int) -> list[int]:
        """``length`` token ids; already the first block differs from every other prompt's."""
        ids = self._rng.sample(_ORDINARY_IDS, 2)
        while len(ids) < length:
            ids += self._rng.choice(self._sentences)
        return ids[:length]
