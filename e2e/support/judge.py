"""Compares answers with the reference's and keeps the table."""

from __future__ import annotations

import threading

from support.client import Answer
from support.exact import FLOAT32, Rule, distances, judge
from support.reference import Scores
from support.table import Table

SIXTEEN_BIT, W4A16 = "16-bit", "W4A16"
LORA, FULL = "LoRA", "full"


class Judge:
    """Safe to share between threads."""

    def __init__(self) -> None:
        self.table = Table()
        self.furthest: dict[str, Rule] = {}  # by kind of decoder: the largest distances seen in right answers
        self._lock = threading.Lock()

    def check(
        self, line: str, answer: Answer, scores: Scores, *, prefill: str = LORA, decoder: str = SIXTEEN_BIT,
        rule: Rule = FLOAT32,
    ) -> None:  # fmt: skip
        """Count the answer in the row of its contract line; raises :class:`AssertionError` unless it is exact."""
        with self._lock:
            row = self.table.row(line, decoder, prefill)
            row.requests += 1
            row.mismatches += 1
            verdict = judge(answer, scores, rule)
            row.mismatches -= 1
            row.tokens += verdict.compared
            row.near_ties += verdict.near_ties
            seen = self.furthest.get(decoder, Rule(0.0, 0.0))
            self.furthest[decoder] = Rule(
                max(seen.gap, *scores.gaps), max(seen.logprob, *distances(answer.logprobs, scores), 0.0)
            )

    def note(
        self, line: str, *, prefill: str = LORA, decoder: str = SIXTEEN_BIT, resumes: int = 0, preempted: int = 0
    ) -> None:
        """Add to a row what happened to its requests on the way."""
        with self._lock:
            row = self.table.row(line, decoder, prefill)
            row.resumes += resumes
            row.preemptions += preempted
