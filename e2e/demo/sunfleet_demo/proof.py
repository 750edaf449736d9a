"""What the demo claims, each claim checked. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sunfleet_demo.questions import Asked, Known
from support.exact import compare
from support.metrics import PromptTokens


@dataclass(frozen=True)
class Claim:
    """A sentence, whether it holds, and what was seen."""

    sentence: str
    holds: bool
    seen: str


def claims(asked: Sequence[Asked], known: Mapping[str, Known], decoder: Mapping[str, PromptTokens]) -> list[Claim]:
    """``decoder``: prompt tokens by source that each decode pod counted while the questions were asked."""
    return [
        _exact(asked, known),
        _not_the_base(known),
        _one_pod(asked),
        _own_prefill(asked),
        *_no_prompt_computed(asked, decoder),
    ]


def _exact(asked: Sequence[Asked], known: Mapping[str, Known]) -> Claim:
    verdicts = [(one, compare(one.answer.token_ids, known[one.question.task].expected)) for one in asked]
    wrong = [f"{one.question.task}: {verdict.explanation}" for one, verdict in verdicts if not verdict.exact]
    count = sum(len(one.answer.token_ids) for one in asked)
    return Claim(
        "every token equals the transformers reference",
        not wrong,
        "; ".join(wrong) or f"{count} tokens in {len(asked)} answers",
    )


def _not_the_base(known: Mapping[str, Known]) -> Claim:
    same = [task for task, one in known.items() if one.expected.token_ids == one.base_alone.token_ids]
    seen = f"the same for {', '.join(same)}" if same else f"{len(known)} of {len(known)} answers differ"
    return Claim("the base model alone would have answered otherwise", not same, seen)


def _one_pod(asked: Sequence[Asked]) -> Claim:
    pods = {one.answer.decode_pod for one in asked}
    tasks = {one.question.task for one in asked}
    return Claim(
        "one decode pod served every task", len(pods) == 1 and "" not in pods, f"{_listed(pods)} for {_listed(tasks)}"
    )


def _own_prefill(asked: Sequence[Asked]) -> Claim:
    pods: dict[str, set[str]] = {}
    for one in asked:
        pods.setdefault(one.question.task, set()).add(one.answer.prefill_pod)
    every = [pod for own in pods.values() for pod in own]
    return Claim(
        "each task's prompts went to its own prefill pods",
        len(every) == len(set(every)) and "" not in every,
        "; ".join(f"{task}: {_listed(own)}" for task, own in sorted(pods.items())),
    )


def _no_prompt_computed(asked: Sequence[Asked], decoder: Mapping[str, PromptTokens]) -> list[Claim]:
    computed = sum(tokens.local_compute for tokens in decoder.values())
    received = sum(tokens.transferred for tokens in decoder.values())
    cached = sum(tokens.local_cache for tokens in decoder.values())
    prompts = sum(len(one.answer.prompt_token_ids) for one in asked)
    return [
        Claim("the decoder computed no prompt token itself", computed == 0, f"local_compute {computed}"),
        Claim(
            "every prompt token of the decoder is accounted for",
            received + cached == prompts,
            f"{received} received from prefill pods + {cached} received before and cached; {prompts} in the prompts",
        ),
    ]


def _listed(values: set[str]) -> str:
    return ", ".join(sorted(value or "none" for value in values))
