"""Accuracy on held-out rows by real generation along the reference path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from sunfleet_tuner.checkpoint import Accuracy
from sunfleet_tuner.reference import Modules, ModuleSpec, Sampling
from sunfleet_tuner.samples.tasks import Example, Task

# Room after the right answer: one that has not ended by then is wrong, and the untuned base would go on for long.
SPARE_TOKENS = 8


def evaluate(
    modules: Modules, adapter: Path, task: Task, examples: Sequence[Example], say: Callable[[str], None]
) -> list[Accuracy]:
    """Right answers of the base alone, and of the tuned prefill module before the base."""
    results = []
    for prefill, spec in (("base", ModuleSpec()), ("tuned", ModuleSpec(adapter=str(adapter)))):
        correct = sum(_right(modules, spec, task, example) for example in examples)
        results.append(Accuracy(prefill=prefill, decode="base", correct=correct, total=len(examples)))
        say(f"{task.name}: {prefill} -> base: {correct} of {len(examples)} right")
    return results


def _right(modules: Modules, spec: ModuleSpec, task: Task, example: Example) -> bool:
    limit = len(modules.tokenizer.encode(example.answer)) + SPARE_TOKENS
    given = modules.answer(spec, modules.prompt_ids(example.messages), Sampling(max_tokens=limit))
    return given.finish_reason == "stop" and task.correct(modules.text(given.token_ids), example.answer)
