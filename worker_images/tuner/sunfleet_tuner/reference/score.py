"""An answer that was served, judged token by token: what the reference prefers after the tokens that came before.

If every served token is the reference's choice given the served ones before it, the answer is the one that
:func:`~sunfleet_tuner.reference.generate.generate` gives. This needs one pass over the answer instead of one for each
token, and it goes on after a token that is not the reference's choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from transformers import DynamicCache

from sunfleet_tuner.reference.generate import Module, Sampling, run, scored, stop_ids


@dataclass
class Scores:
    """One entry for each served token."""

    # The reference's choice at this position.
    token_ids: list[int] = field(default_factory=list)
    # By how much it prefers its choice to the served token, in logits after penalties; 0 where they are the same.
    gaps: list[float] = field(default_factory=list)
    # Log-probability of the served token before penalties, in nats.
    logprobs: list[float] = field(default_factory=list)
    # How such an answer ends; empty: it should not have ended here, or sooner.
    finish_reason: Literal["stop", "length", ""] = ""


def score(
    prefill: Module, decode: Module, prompt: Sequence[int], served: Sequence[int], sampling: Sampling,
    eos: Sequence[int],
) -> Scores:  # fmt: skip
    """Judge ``served``, the tokens of an answer to ``prompt``; neither may be empty."""
    if not prompt or not served:
        raise ValueError("the prompt or the answer has no tokens")
    cache, scores, stops = DynamicCache(), Scores(), stop_ids(sampling, eos)
    with torch.inference_mode(), prefill() as model:
        rows = [*run(model, prompt, cache, 1)]
    if len(served) > 1:
        with torch.inference_mode(), decode() as model:
            rows += [*run(model, served[:-1], cache, len(served) - 1)]
    for position, (row, token) in enumerate(zip(rows, served, strict=True)):
        _judge(scores, token, row, scored(row, prompt, served[:position], sampling, stops))
    scores.finish_reason = _finish(served, stops, sampling.max_tokens)
    return scores


def _judge(scores: Scores, token: int, logits: torch.Tensor, preferred: torch.Tensor) -> None:
    best = int(preferred.argmax())
    scores.token_ids.append(best)
    # A token that ties with the lowest-numbered best one is as good as that one.
    scores.gaps.append(float(preferred[best] - preferred[token]))
    scores.logprobs.append(float(torch.log_softmax(logits, dim=-1)[token]))


def _finish(served: Sequence[int], stops: set[int], max_tokens: int) -> Literal["stop", "length", ""]:
    if not stops.isdisjoint(served[:-1]) or len(served) > max_tokens:
        return ""
    if served[-1] in stops:
        return "stop"
    return "length" if len(served) == max_tokens else ""
