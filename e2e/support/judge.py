"""Compares answers with the reference's and keeps the table."""

from __future__ import annotations

import threading

from support.client import Answer
from support.exact import assert_exact
from support.reference import Expected
from support.table import Table

SIXTEEN_BIT = "16-bit"
LORA, FULL = "LoRA", "full"


class Judge:
    """Safe to share between threads."""

    def __init__(self) -> None:
        self.table = Table()
        self._lock = threading.Lock()

    def check(
        self, line: str, answer: Answer, expected: Expected, *, prefill: str = LORA, decoder: str = SIXTEEN_BIT
    ) -> None:
        """Count the answer in the row of its contract line; raises :class:`AssertionError` unless it is exact."""
        with self._lock:
            row = self.table.row(line, decoder, prefill)
            row.requests += 1
            row.mismatches += 1
            verdict = assert_exact(answer, expected)
            row.mismatches -= 1
            row.tokens += verdict.compared
            row.near_ties += not verdict.exact

    def note(
        self, line: str, *, prefill: str = LORA, decoder: str = SIXTEEN_BIT, resumes: int = 0, preempted: int = 0
    ) -> None:
        """Add to a row what happened to its requests on the way."""
        with self._lock:
            row = self.table.row(line, decoder, prefill)
            row.resumes += resumes
            row.preemptions += preempted
