"""Accuracy of a sample's prefill module on held-out rows, beside that of the base alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from sunfleet_tuner.checkpoint import Accuracy
from sunfleet_tuner.evaluate import Pair, Question, evaluate
from sunfleet_tuner.reference import Modules, ModuleSpec
from sunfleet_tuner.samples.tasks import Example, Task


def measure(
    modules: Modules, adapter: Path, task: Task, examples: Sequence[Example], say: Callable[[str], None]
) -> list[Accuracy]:
    """Right answers of the base alone, and of the tuned prefill module before the base."""
    results = []
    for prefill, spec in (("base", ModuleSpec()), ("tuned", ModuleSpec(adapter=str(adapter)))):
        score = evaluate(Pair(modules, spec), questions(examples), task.correct)
        results.append(Accuracy(prefill=prefill, decode="base", correct=score.correct, total=len(examples)))
        say(f"{task.name}: {prefill} -> base: {score} right")
    return results


def questions(examples: Sequence[Example]) -> list[Question]:
    """The examples as what an evaluation asks."""
    return [Question(example.messages, example.answer) for example in examples]
