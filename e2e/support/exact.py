"""Token-exactness: equal to the reference, or the reason why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from support.client import Answer
from support.reference import Expected, Scores

# Logits of the float32 engine and of the reference differ by rounding, about 1e-5 here. Where the reference's best two
# tokens are closer than this, either one is right and what follows cannot be compared.
NEAR_TIE = 1e-3


@dataclass(frozen=True)
class Verdict:
    """``near-tie`` counts as equal up to its position only, and is always reported."""

    outcome: Literal["exact", "near-tie", "different"]
    explanation: str = ""
    compared: int = 0  # tokens found equal or excused
    near_ties: int = 0

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
        return Verdict("near-tie", f"{where}, the runner-up by {margin:.1e} in logits", at, 1)
    return Verdict("different", f"{where}; the reference preferred its choice by {margin:.4f} in logits")


LOGPROB_TOLERANCE = 1e-3  # between the engine's float32 and the reference's, in nats


@dataclass(frozen=True)
class Rule:
    """How far an engine's rounding may carry it from the reference.

    ``gap``: a served token is right while the reference's logit of its own choice is higher by no more than this.
    ``logprob``: the same for reported log-probabilities, in nats.
    """

    gap: float
    logprob: float


FLOAT32 = Rule(NEAR_TIE, LOGPROB_TOLERANCE)
# Measured (docs/exactness.md): the furthest of 3,700 right tokens was off by 0.06; wrong answers are by 5 somewhere.
FLOAT16 = Rule(0.15, 0.15)


def distances(logprobs: Sequence[float], scores: Scores) -> list[float]:
    """Between reported log-probabilities and the reference's; none when none were asked for."""
    return [abs(got - wanted) for got, wanted in zip(logprobs, scores.logprobs, strict=True)] if logprobs else []


def unexplained(logprobs: Sequence[float], scores: Scores, rule: Rule) -> list[int]:
    """Positions at which rounding does not explain the served token or its log-probability."""
    far = {position for position, gap in enumerate(scores.gaps) if gap > rule.gap}
    far |= {position for position, distance in enumerate(distances(logprobs, scores)) if distance > rule.logprob}
    return sorted(far)


def judge(answer: Answer, scores: Scores, rule: Rule = FLOAT32) -> Verdict:
    """Every served token under the reference's logits after the served tokens before it; then text, counts and
    log-probabilities. A near-tie is a token that is not the reference's choice and yet within the rule.

    Raises:
        AssertionError: something differs.
    """
    _assert_same("number of log-probabilities", len(answer.logprobs or answer.token_ids), len(answer.token_ids))
    for position in unexplained(answer.logprobs, scores, rule):
        off = distances(answer.logprobs, scores)[position] if answer.logprobs else 0.0
        raise AssertionError(
            f"{answer.model}, {len(scores.prompt_token_ids)} tokens: token {position} of {len(answer.token_ids)}: "
            f"got {answer.token_ids[position]}, the reference prefers {scores.token_ids[position]} "
            f"by {scores.gaps[position]:.4f} in logits; the log-probability differs by {off:.4f} (allowed: {rule})"
        )
    _assert_same("finish reason (empty: it should not end here)", answer.finish_reason, scores.finish_reason)
    _assert_rest(answer, scores.prompt_token_ids, scores.text)
    near_ties = sum(served != best for served, best in zip(answer.token_ids, scores.token_ids, strict=True))
    outcome: Literal["exact", "near-tie"] = "near-tie" if near_ties else "exact"
    return Verdict(outcome, compared=len(answer.token_ids), near_ties=near_ties)


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
    _assert_same("finish reason", answer.finish_reason, expected.finish_reason)
    _assert_rest(answer, expected.prompt_token_ids, expected.text)
    if answer.logprobs:
        _assert_same("number of log-probabilities", len(answer.logprobs), len(expected.logprobs))
        distance = max(abs(got - wanted) for got, wanted in zip(answer.logprobs, expected.logprobs, strict=True))
        assert distance < LOGPROB_TOLERANCE, f"a log-probability differs by {distance:.2e}"
    return verdict


def _assert_rest(answer: Answer, prompt_token_ids: Sequence[int], text: str) -> None:
    # A character that is cut off after some of its bytes: the engine keeps it back, a decoder shows a mark for it.
    _assert_same("text", answer.text, text.rstrip("\ufffd"))
    _assert_same("prompt_token_ids", answer.prompt_token_ids, prompt_token_ids)
    counts = (answer.usage["prompt_tokens"], answer.usage["completion_tokens"])
    _assert_same("usage", counts, (len(prompt_token_ids), len(answer.token_ids)))


def _assert_same(what: str, got: object, wanted: object) -> None:
    assert got == wanted, f"{what}: got {got!r}, expected {wanted!r}"
