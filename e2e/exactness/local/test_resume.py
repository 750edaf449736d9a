"""Streams whose decode leg breaks off: the client sees one unbroken, exact answer. Contract line 5."""

from __future__ import annotations

from typing import Any

import pytest

from support.engines import BLOCK
from support.local_tasks import TASKS
from support.trial import Trial

LINE = "5 cut streams"
TURNS = "5 cut chat turns"


def long(value: object) -> object:
    """A parameter that `make test` leaves out."""
    return pytest.param(value, marks=pytest.mark.long)


def cut_and_resumed(
    trial: Trial, line: str, task: str, prompt: list[Any], cuts: tuple[int, ...], **options: Any
) -> Any:
    """Ask with cuts; every one must have happened and been mended."""
    broken, resumed = trial.fleet.lines.plan.done, trial.fleet.resumes()
    answer = trial.ask(line, task, prompt, cuts=cuts, **options)
    assert trial.fleet.lines.plan.done - broken == len(cuts)
    told = sum(cut > 0 for cut in cuts)  # nothing was told yet: a new try, not a resume
    assert trial.fleet.resumes() - resumed == told
    trial.note(line, task, resumes=told)
    return answer


@pytest.mark.parametrize("events", [1, BLOCK, *(long(events) for events in (0, 2, BLOCK - 1, BLOCK + 1, 100))])
@pytest.mark.parametrize("task", TASKS)
def test_a_completion_goes_on_after_any_token(trial: Trial, task: str, events: int) -> None:
    prompt = trial.prompts.new(BLOCK + 9)
    cut_and_resumed(
        trial, LINE, task, prompt, (events,), client={"logprobs": 0}, max_tokens=max(50, events + 10), ignore_eos=True
    )  # fmt: skip


@pytest.mark.parametrize("events", [1, long(2), long(BLOCK)])
@pytest.mark.parametrize("task", TASKS)
def test_a_chat_goes_on_after_any_event(trial: Trial, task: str, events: int) -> None:
    """Its first event only names the role."""
    messages = [{"role": "user", "content": f"Tell me a story about number {events}."}]
    cut_and_resumed(trial, LINE, task, messages, (events,), max_tokens=45, ignore_eos=True)


@pytest.mark.parametrize("cuts", [(5, 5), long((1, 1, 1)), long((BLOCK, 1, BLOCK))])
def test_a_stream_may_break_more_than_once(trial: Trial, cuts: tuple[int, ...]) -> None:
    cut_and_resumed(trial, LINE, "lora", trial.prompts.new(BLOCK), cuts, max_tokens=sum(cuts) + 30, ignore_eos=True)


@pytest.mark.long
def test_five_chat_turns_with_breaks_between(trial: Trial) -> None:
    """Every earlier answer is prompt: its KV must come from the prefill module, whoever decoded it."""
    for task in TASKS:
        ids = trial.prompts.new(BLOCK + 3)
        for turn in range(5):
            cuts = (9 + turn,) if turn % 2 else ()
            answer = cut_and_resumed(trial, TURNS, task, ids, cuts, max_tokens=BLOCK + 5, ignore_eos=True)
            ids = [*ids, *answer.token_ids, *trial.prompts.new(11)]


@pytest.mark.long
@pytest.mark.parametrize(
    "sampling",
    [
        {"repetition_penalty": 1.3, "ignore_eos": True},
        {"presence_penalty": 1.5, "frequency_penalty": 0.7, "ignore_eos": True},
        {"min_tokens": 30},
    ],
    ids=["repetition", "presence-and-frequency", "min-tokens"],
)
def test_what_was_told_counts_as_output_after_a_break(trial: Trial, sampling: dict[str, Any]) -> None:
    for task in TASKS:
        cut_and_resumed(trial, LINE, task, trial.prompts.new(BLOCK + 2), (12,), max_tokens=40, **sampling)


def test_decoders_computed_no_prompt(trial: Trial) -> None:
    """Of all streams above. Last in this file."""
    assert trial.fleet.prompt_tokens().local_compute == 0
