"""Whether an answer is the golden one, and in which words it is not. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sunfleet_api.worker import VerificationReport


def difference(given: Sequence[int], expected: Sequence[int]) -> str:
    """Where two answers (token ids) differ first; empty when they are equal."""
    for at, (got, wanted) in enumerate(zip(given, expected, strict=False)):
        if got != wanted:
            return f"token {at} is {got}, expected {wanted}"
    if len(given) != len(expected):
        return f"{len(given)} tokens, expected {len(expected)}"
    return ""


def report(differences: Sequence[str]) -> VerificationReport:
    """From one difference per prompt, empty where the answer was exact."""
    found = [(number, text) for number, text in enumerate(differences) if text]
    first = f"prompt {found[0][0]}: {found[0][1]}" if found else ""
    return VerificationReport(passed=len(differences) - len(found), total=len(differences), first_mismatch=first)
