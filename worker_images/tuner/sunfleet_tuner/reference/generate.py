"""Prefill with one module, decode with another: greedy, one sequence, every step recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from transformers import DynamicCache


class Sampling(BaseModel):
    """Greedy sampling with OpenAI's and vLLM's knobs; the defaults change nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    max_tokens: int = Field(default=16, ge=1)
    min_tokens: int = Field(default=0, ge=0)
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    repetition_penalty: float = Field(default=1.0, gt=0)  # over prompt and output
    presence_penalty: float = 0.0  # over output
    frequency_penalty: float = 0.0  # over output


@dataclass
class Answer:
    """Token ids of the answer (a stop token included) and, per token, how sure the choice was."""

    token_ids: list[int] = field(default_factory=list)
    # Log-probability of the token before penalties, in nats, as engines report it.
    logprobs: list[float] = field(default_factory=list)
    # Distance to the second-best token in logits, after penalties: near 0 is a tie that rounding may turn.
    margins: list[float] = field(default_factory=list)
    runners_up: list[int] = field(default_factory=list)
    finish_reason: Literal["stop", "length"] = "length"


# A module to run within the ``with`` block. Both may be the same weights in two states (an adapter on and off).
Module = Callable[[], AbstractContextManager[Any]]


def generate(prefill: Module, decode: Module, prompt: Sequence[int], sampling: Sampling, eos: Sequence[int]) -> Answer:
    """Answer ``prompt`` (at least one token id); ``eos`` ends an answer unless ``ignore_eos``."""
    if not prompt:
        raise ValueError("the prompt has no tokens")
    stops = stop_ids(sampling, eos)
    answer = Answer()
    cache = DynamicCache()
    with torch.inference_mode(), prefill() as model:
        _choose(run(model, prompt, cache, 1)[0], prompt, answer, sampling, stops)
    with torch.inference_mode(), decode() as model:
        while answer.token_ids[-1] not in stops and len(answer.token_ids) < sampling.max_tokens:
            logits = run(model, answer.token_ids[-1:], cache, 1)[0]
            _choose(logits, prompt, answer, sampling, stops)
    answer.finish_reason = "stop" if answer.token_ids[-1] in stops else "length"
    return answer


def stop_ids(sampling: Sampling, eos: Sequence[int]) -> set[int]:
    """Tokens that end an answer."""
    return {*sampling.stop_token_ids, *(() if sampling.ignore_eos else eos)}


def run(model: Any, token_ids: Sequence[int], cache: DynamicCache, keep: int) -> torch.Tensor:
    """Run ``token_ids`` after what ``cache`` holds, which grows by them; logits of the last positions,
    [keep, vocabulary].
    """
    input_ids = torch.tensor([list(token_ids)])
    output = model(input_ids=input_ids, past_key_values=cache, use_cache=True, logits_to_keep=keep)
    logits: torch.Tensor = output.logits[0, -keep:].float()
    return logits


def _choose(logits: torch.Tensor, prompt: Sequence[int], answer: Answer, sampling: Sampling, stops: set[int]) -> None:
    """Append the best token to ``answer``."""
    scores = scored(logits, prompt, answer.token_ids, sampling, stops)
    best, second = torch.topk(scores, 2).indices.tolist()
    answer.token_ids.append(best)
    answer.logprobs.append(float(torch.log_softmax(logits, dim=-1)[best]))
    answer.margins.append(float(scores[best] - scores[second]))
    answer.runners_up.append(second)


def scored(
    logits: torch.Tensor, prompt: Sequence[int], output: Sequence[int], sampling: Sampling, stops: set[int]
) -> torch.Tensor:
    """What the next token is chosen by: logits after penalties, without what may not come yet; [vocabulary]."""
    scores = _penalised(logits, prompt, output, sampling)
    if len(output) < sampling.min_tokens:
        scores[list(stops)] = -torch.inf
    return scores


def _penalised(logits: torch.Tensor, prompt: Sequence[int], output: Sequence[int], sampling: Sampling) -> torch.Tensor:
    """Logits after penalties, in the order of vLLM: repetition first, then frequency and presence."""
    scores = logits.clone()
    seen = torch.tensor(sorted({*prompt, *output}))
    scores[seen] = torch.where(
        scores[seen] > 0, scores[seen] / sampling.repetition_penalty, scores[seen] * sampling.repetition_penalty
    )
    if output:
        counts = torch.bincount(torch.tensor(list(output)), minlength=len(scores))
        scores -= sampling.frequency_penalty * counts
        scores -= sampling.presence_penalty * (counts > 0)
    return scores
