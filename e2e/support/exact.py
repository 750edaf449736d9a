"""Token-exactness: equal to the reference, or the reason why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from support.client import Answer
from support.reference import Expected

# Logits of the float32 engine and of the reference differ by rounding, about 1e-5 here. Where the reference's best two
# tokens are closer than this, either one is right and what follows cannot be compared.
NEAR_TIE = 1e-3


@dataclass(frozen=True)
class Verdict:
    """``near-tie`` counts as equal up to its position only, and is always reported."""

    outcome: Literal["exact", "near-tie", "different"]
    explanation: str = ""
    compared: int = 0  # tokens found equal

    @property
    def exact(self) -> bool:
        return self.outcome == "exact"


def compare(given: Sequence[int], expected: Expected) -> Verdict:
    """Compare an answer's token ids with the reference's."""
    if list(given) == expected.token_ids:
        return Verdict("exact", compared=len(expected.token_ids))
    pairs = enumerate(zip_longest(given, expected.token_ids))
    at, (got, wanted) = next((i, pair) for i, pair in pairs if pair[0] != pair[1])
    where = f"token {at}: got {got}, expected {wanted}"
    if got is None or wanted is None:
        return Verdict("different", f"{where} ({len(given)} tokens, expected {len(expected.token_ids)})")
    margin = expected.margins[at]
    if margin < NEAR_TIE and got == expected.runners_up[at]:
        return Verdict("near-tie", f"{where}, the runner-up by {margin:.1e} in logits", at)
    return Verdict("different", f"{where}; the reference preferred its choice by {margin:.4f} in logits")


LOGPROB_TOLERANCE = 1e-3  # between the engine's float32 and the reference's, in nats


def assert_exact(answer: Answer, expected: Expected) -> Verdict:
    """Token for token, text, counts, and log-probabilities if there are any; a near-tie is accepted up to its position
    and printed.
    """
    verdict = compare(answer.token_ids, expected)
    assert verdict.outcome != "different", (
        f"{answer.model}, {len(expected.prompt_token_ids)} tokens: {verdict.explanation}"
    )
    if not verdict.exact:
        print(f"near-tie: {answer.model}: {verdict.explanation}")
        return verdict
    # A character that is cut off after some of its bytes: the engine keeps it back, a decoder shows a mark for it.
    assert answer.text == expected.text.rstrip("\ufffd")
    assert answer.finish_reason == expected.finish_reason
    assert answer.prompt_token_ids == expected.prompt_token_ids
    assert answer.usage["prompt_tokens"] == len(expected.prompt_token_ids)
    assert answer.usage["completion_tokens"] == len(expected.token_ids)
    if answer.logprobs:
        assert len(answer.logprobs) == len(expected.logprobs)
        distances = [abs(got - wanted) for got, wanted in zip(answer.logprobs, expected.logprobs, strict=True)]
        assert max(distances) < LOGPROB_TOLERANCE
    return verdict
