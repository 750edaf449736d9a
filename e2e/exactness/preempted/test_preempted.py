"""A decode pod that runs out of KV all the time: every answer is exact, and all come to their end. Contract line 4."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.client import Answer
from support.engines import get_text
from support.kubectl import wait_until
from support.local_fleet import POOL
from support.local_tasks import TASKS
from support.metrics import samples
from support.trial import Trial

pytestmark = pytest.mark.long

LINE, RESERVED = "4 preempted", "4 room reserved"
AT_ONCE = 6
WORDS = ("river", "seven", "paper", "Tuesday", "copper", "window", "eleven", "garden", "music", "north")


def message(number: int) -> list[dict[str, str]]:
    """Questions of different lengths."""
    words = " ".join(WORDS[(number * 3 + at) % len(WORDS)] for at in range(4 + 6 * (number % 5)))
    return [{"role": "user", "content": f"Tell me a long story, number {number}, with these words: {words}."}]


@pytest.mark.parametrize("options", [{}, {"logprobs": True}], ids=["plain", "log-probabilities"])
@pytest.mark.parametrize("sampling", [{}, {"frequency_penalty": 0.4}], ids=["greedy", "penalty"])
def test_streams_that_are_preempted_again_and_again_are_exact(
    trial: Trial, options: dict[str, Any], sampling: dict[str, Any]
) -> None:
    """No limit is named, so all go on until the context is full; the pool holds fewer than two of them by then."""
    (small,) = trial.fleet.decoders[POOL]
    before = counted(trial)
    first = AT_ONCE * (2 * bool(options) + bool(sampling))
    asked = [(TASKS[number % 2], message(number)) for number in range(first, first + AT_ONCE)]

    def ask(task: str, messages: list[dict[str, str]]) -> Answer:
        return trial.fleet.ask(task, messages, stream=True, extra_body={"ignore_eos": True}, **options, **sampling)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda one: ask(*one), asked))
    for (task, messages), answer in zip(asked, answers, strict=True):
        limit = small.max_model_len - len(answer.prompt_token_ids)
        trial.compare(LINE, task, messages, answer, max_tokens=limit, ignore_eos=True, **sampling)
    after, all_preempted = counted(trial), 0
    for task in TASKS:
        resumes, preempted = (now - then for now, then in zip(after[task], before[task], strict=True))
        trial.note(LINE, task, resumes=resumes, preempted=preempted)
        all_preempted += preempted
    assert all_preempted >= AT_ONCE // 2, "the pool was large enough; the test shows nothing"


def counted(trial: Trial) -> dict[str, tuple[int, int]]:
    """Per task: resumes for any reason, and for this one. Another reason is KV that waited for room for too long."""
    fleet = trial.fleet
    return {task: (fleet.resumes(task=task), fleet.resumes(task=task, reason="preempted")) for task in TASKS}


def test_with_limits_the_router_reserves_room_and_nothing_is_preempted(trial: Trial) -> None:
    """100 tokens each, so four blocks: two fit into the pool. Three would by tokens alone, and one be preempted."""
    before = counted(trial)
    asked = [(TASKS[number % 2], trial.prompts.new(60)) for number in range(AT_ONCE)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = [
            pool.submit(trial.ask, RESERVED, task, prompt, max_tokens=40, ignore_eos=True) for task, prompt in asked
        ]
        for future in futures:
            future.result()
    assert counted(trial) == before


def test_nothing_is_left_and_no_prompt_was_computed(trial: Trial) -> None:
    """Of all streams above. Last in this file."""
    (small,) = trial.fleet.decoders[POOL]
    engines = [small, *(task.prefill for task in trial.fleet.tasks.values())]

    def used() -> float:
        pages = [get_text(f"{engine.url}/metrics") for engine in engines]
        return sum(value for page in pages for _, value in samples(page, "vllm:kv_cache_usage_perc"))

    wait_until("all KV is free", lambda: used() == 0, 15, 0.2)
    assert trial.fleet.prompt_tokens().local_compute == 0
