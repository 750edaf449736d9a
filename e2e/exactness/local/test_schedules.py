"""Random requests, lengths, tasks, faults and schedules; hypothesis prints what failed and shrinks it.

``--hypothesis-seed=N`` repeats a run.
"""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from support.client import Answer
from support.engines import BLOCK
from support.trial import Trial

pytestmark = pytest.mark.long

LINE = "3 5 random schedules"
SCHEDULES = 350
AT_ONCE = 8


@dataclass(frozen=True)
class Question:
    """One request of a schedule. ``prompt``: a seed, so that equal ones repeat a prompt and hit caches."""

    task: str
    prompt: int
    length: int
    output: int
    cuts: tuple[int, ...]
    wait: float  # seconds before it is asked

    @property
    def token_ids(self) -> list[int]:
        rng = random.Random(self.prompt)  # noqa: S311 - test data
        return [rng.randrange(1_000, 40_000) for _ in range(self.length)]


def questions() -> st.SearchStrategy[Question]:
    border = st.builds(lambda blocks, side: max(1, BLOCK * blocks + side), st.integers(0, 8), st.integers(-1, 1))
    return st.builds(
        Question,
        task=st.sampled_from(["lora", "full"]),
        prompt=st.integers(0, 12),
        length=st.one_of(border, st.integers(1, 400)),
        output=st.one_of(st.sampled_from([1, 2, BLOCK - 1, BLOCK, BLOCK + 1]), st.integers(1, 90)),
        cuts=st.lists(st.integers(0, 40), max_size=2).map(tuple),
        wait=st.sampled_from([0.0, 0.0, 0.05, 0.3]),
    )


# No shrinking by default time limits: an example is a whole schedule on real engines and takes seconds.
@settings(
    max_examples=SCHEDULES, deadline=None, suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate, Phase.shrink], print_blob=True,
)  # fmt: skip
@given(schedule=st.lists(questions(), min_size=1, max_size=AT_ONCE))
@pytest.mark.timeout(7200)
def test_every_answer_of_a_random_schedule_is_exact(trial: Trial, schedule: list[Question]) -> None:
    resumed = trial.fleet.resumes()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = []
        for question in schedule:
            time.sleep(question.wait)
            futures.append(pool.submit(ask, trial, question))
        answers = [future.result() for future in futures]
    for question, answer in zip(schedule, answers, strict=True):
        sampling = {"max_tokens": question.output, "ignore_eos": True}
        trial.compare(LINE, question.task, question.token_ids, answer, **sampling)
    trial.note(LINE, schedule[0].task, resumes=trial.fleet.resumes() - resumed)
    assert trial.fleet.prompt_tokens().local_compute == 0


def ask(trial: Trial, question: Question) -> Answer:
    return trial.fleet.ask(
        question.task, question.token_ids, cuts=question.cuts, stream=True, max_tokens=question.output,
        extra_body={"ignore_eos": True},
    )  # fmt: skip
