"""One question of the local exactness suites: asked, disturbed, compared and counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from support.client import Answer
from support.exact import FLOAT32, Rule
from support.judge import FULL, LORA, SIXTEEN_BIT, Judge
from support.local_fleet import LocalFleet
from support.prompts import Prompts

# What the router client takes beside the sampling parameters that the reference knows too.
_OPENAI_FIELDS = frozenset({"max_tokens", "presence_penalty", "frequency_penalty"})


@dataclass
class Trial:
    """The fleet, the judge, and fresh prompts."""

    fleet: LocalFleet
    judge: Judge
    prompts: Prompts
    decoder: str = SIXTEEN_BIT  # its kind, as the table names it
    rule: Rule = FLOAT32

    def ask(
        self,
        line: str,
        task: str,
        prompt: Sequence[Any],
        *,
        cuts: Sequence[int] = (),
        client: Mapping[str, Any] | None = None,
        **sampling: Any,
    ) -> Answer:
        """A streamed question; compared in the row of ``line``.

        ``prompt``: token ids or chat messages. ``sampling``: as the reference takes it. ``client``: more fields for the
        router alone, such as ``logprobs``.
        """
        extra = {name: value for name, value in sampling.items() if name not in _OPENAI_FIELDS}
        known = {name: value for name, value in sampling.items() if name in _OPENAI_FIELDS}
        options = {**known, **(client or {}), "extra_body": extra}
        answer = self.fleet.ask(task, prompt, cuts=cuts, stream=True, **options)
        self.compare(line, task, prompt, answer, **sampling)
        return answer

    def compare(self, line: str, task: str, prompt: Sequence[Any], answer: Answer, **sampling: Any) -> None:
        """With what the reference says to each of its tokens."""
        scores = self.fleet.score(task, prompt, answer, **sampling)
        self.judge.check(line, answer, scores, prefill=kind(task), decoder=self.decoder, rule=self.rule)

    def note(self, line: str, task: str, *, resumes: int = 0, preempted: int = 0) -> None:
        """Add to the row of ``line`` what happened to its requests on the way."""
        self.judge.note(line, prefill=kind(task), decoder=self.decoder, resumes=resumes, preempted=preempted)


def kind(task: str) -> str:
    """The kind of a task's prefill module, as the table names it."""
    return FULL if task == "full" else LORA
