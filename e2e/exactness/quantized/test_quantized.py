"""Lines 1 to 5 of the contract with a W4A16 decoder."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from support.engines import BLOCK
from support.trial import Trial

TASKS = ("lora", "full")
LENGTHS = [1, 2, *(blocks * BLOCK + side for blocks in (1, 2, 4) for side in (-1, 0, 1))]
OUTPUT = 20


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("task", TASKS)
def test_cold_and_repeated(trial: Trial, task: str, length: int) -> None:
    prompt = trial.prompts.new(length)
    for line in ("6 cold", "6 cached"):
        trial.ask(line, task, prompt, max_tokens=OUTPUT, ignore_eos=True)


@pytest.mark.parametrize("task", TASKS)
def test_chat_turns(trial: Trial, task: str) -> None:
    ids = trial.prompts.new(BLOCK + 3)
    for _ in range(5):
        answer = trial.ask("6 chat turns", task, ids, max_tokens=BLOCK + 5, ignore_eos=True)
        ids = [*ids, *answer.token_ids, *trial.prompts.new(11)]


def test_mixed_at_once(trial: Trial) -> None:
    asked = [(TASKS[i % 2], trial.prompts.new(20 + 17 * i)) for i in range(8)]
    with ThreadPoolExecutor(len(asked)) as pool:
        futures = [
            pool.submit(trial.ask, "6 mixed batch", task, prompt, max_tokens=64, ignore_eos=True)
            for task, prompt in asked
        ]
    for future in futures:
        future.result()


@pytest.mark.parametrize("events", [1, 2, BLOCK - 1, BLOCK, BLOCK + 1])
@pytest.mark.parametrize("task", TASKS)
def test_cut_and_resumed(trial: Trial, task: str, events: int) -> None:
    resumed = trial.fleet.resumes()
    trial.ask("6 cut streams", task, trial.prompts.new(BLOCK + 9), cuts=(events,), max_tokens=80, ignore_eos=True)
    assert trial.fleet.resumes() - resumed == 1
    trial.note("6 cut streams", task, resumes=1)


def test_decoders_computed_no_prompt(trial: Trial) -> None:
    """Of all streams above. Last in this file."""
    assert trial.fleet.prompt_tokens().local_compute == 0
