"""What the demo asks, what each answer has to be, and the answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from support.client import Answer, RouterClient
from support.reference import Expected, Reference
from support.samples import EMBEDDED, documents, prefill_uri, sample_request


@dataclass(frozen=True)
class Question:
    """One task's sample request, and where the task's prefill module lies."""

    task: str
    messages: Sequence[dict[str, str]]
    max_tokens: int
    uri: str

    @property
    def text(self) -> str:
        return self.messages[-1]["content"]


@dataclass(frozen=True)
class Known:
    """By the reference: the answer through the shared decoder, and what the base model alone would say."""

    expected: Expected
    base_alone: Expected


@dataclass(frozen=True)
class Asked:
    """One question as it was asked and answered."""

    question: Question
    streamed: bool
    answer: Answer


def questions() -> list[Question]:
    """One per SunModel of the sample."""
    found = []
    for model in documents(EMBEDDED / "models.yaml"):
        name = model["metadata"]["name"]
        request = sample_request(name)
        found.append(Question(name, request["messages"], request["max_tokens"], prefill_uri(model)))
    return found


def compute(reference: Reference, question: Question) -> Known:
    """Ask the reference; seconds on a CPU."""
    module = reference.module(question.uri)
    sampling: dict[str, Any] = {"max_tokens": question.max_tokens}
    return Known(
        reference.answer(module, question.messages, **sampling), reference.answer({}, question.messages, **sampling)
    )


def ask_all(client: RouterClient, asked: Sequence[Question]) -> list[Asked]:
    """Every question in one piece and streamed."""
    return [
        Asked(
            question,
            streamed,
            client.chat(question.task, question.messages, max_tokens=question.max_tokens, stream=streamed),
        )
        for question in asked
        for streamed in (False, True)
    ]
