"""Random requests, lengths, tasks, faults and schedules; hypothesis prints what failed and shrinks it.

``--hypothesis-seed=N`` repeats a run.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

from support.engines import BLOCK, Engine
from support.local_fleet import POOL
from support.local_tasks import TASKS
from support.trial import Trial

pytestmark = pytest.mark.long

LINE = "3 5 random schedules"
REQUESTS = 1700  # with those of the other suites 2,000
# Of the sizes of schedules a quarter are small, and to those a failure shrinks; many at once cost an engine little more
# than a few.
FEW, MANY = (1, 8), (32, 48)
# The token that every prompt ends with. After half a character, which a random token may be, the engine begins the
# answer's text with the prompt's; the tokens are right, and the reference's text cannot be compared.
FULL_STOP = 30


@dataclass(frozen=True)
class Question:
    """One request of a schedule. ``prompt``: a seed; equal ones begin alike, so that caches are hit, and there are more
    of them than a pool keeps.
    """

    task: str
    prompt: int
    length: int
    output: int
    cuts: tuple[int, ...]
    wait: float  # seconds before it is asked

    @property
    def token_ids(self) -> list[int]:
        rng = random.Random(self.prompt)  # noqa: S311 - test data
        return [*(rng.randrange(1_000, 40_000) for _ in range(self.length - 1)), FULL_STOP]


@dataclass(frozen=True)
class Stall:
    """A decode engine stops in its tracks for a while, too short for anyone to give it up."""

    engine: int
    after: float  # seconds from the schedule's begin
    seconds: float


def questions() -> st.SearchStrategy[Question]:
    border = st.builds(lambda blocks, side: max(1, BLOCK * blocks + side), st.integers(0, 4), st.integers(-1, 1))
    return st.builds(
        Question,
        task=st.sampled_from(TASKS),
        prompt=st.integers(0, 25),
        length=st.one_of(border, st.integers(1, 130)),
        output=st.one_of(st.sampled_from([1, 2, BLOCK - 1, BLOCK, BLOCK + 1]), st.integers(1, 36)),
        cuts=st.lists(st.integers(0, 34), max_size=2).map(tuple),
        wait=st.sampled_from([0.0, 0.0, 0.0, 0.05, 0.3]),
    )


SCHEDULE = st.one_of(
    *(st.lists(questions(), min_size=least, max_size=most) for least, most in (FEW, MANY, MANY, MANY))
)  # fmt: skip
STALLS = st.lists(
    st.builds(Stall, st.integers(0, 1), st.sampled_from([0.0, 0.2, 0.7, 1.5]), st.sampled_from([0.1, 0.4, 1.5])),
    max_size=1,
)


@pytest.mark.timeout(7200)
def test_every_answer_of_a_random_schedule_is_exact(trial: Trial, seed: int) -> None:
    passed: list[int] = []  # requests of the schedules so far
    failed: list[BaseException] = []

    @hypothesis.seed(seed)
    # No time limits: an example is a whole schedule on real engines and takes seconds.
    @hypothesis.settings(
        max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), database=None,
        phases=[Phase.generate, Phase.shrink], print_blob=True,
    )  # fmt: skip
    @hypothesis.given(schedule=SCHEDULE, stalls=STALLS)
    def run(schedule: list[Question], stalls: list[Stall]) -> None:
        if sum(passed) >= REQUESTS and not failed:
            return  # enough; once one has failed, smaller ones are tried
        try:
            compare(trial, schedule, stalls)
        except BaseException as error:
            failed.append(error)
            raise
        passed.append(len(schedule))

    run()
    print(f"{len(passed)} schedules with {sum(passed)} requests")
    assert sum(passed) >= REQUESTS


def compare(trial: Trial, schedule: list[Question], stalls: list[Stall]) -> None:
    """Each answer is compared as soon as it is there, while others still run."""
    resumed = {task: trial.fleet.resumes(task=task) for task in TASKS}
    with ThreadPoolExecutor(MANY[1]) as pool, stalled(trial.fleet.decoders[POOL], stalls):
        futures = []
        for question in schedule:
            time.sleep(question.wait)
            futures.append(pool.submit(ask, trial, question))
        for future in futures:
            future.result()
    for task, before in resumed.items():
        trial.note(LINE, task, resumes=trial.fleet.resumes(task=task) - before)
    assert trial.fleet.prompt_tokens().local_compute == 0


@contextmanager
def stalled(engines: list[Engine], stalls: list[Stall]) -> Iterator[None]:
    """While it runs, engines stop and go on; at its end all go on."""

    def stall(one: Stall) -> None:
        time.sleep(one.after)
        engines[one.engine].freeze()
        try:
            time.sleep(one.seconds)
        finally:
            engines[one.engine].thaw()

    with ThreadPoolExecutor(max(1, len(stalls))) as pool:
        futures = [pool.submit(stall, one) for one in stalls]
        yield
        for future in futures:
            future.result()


def ask(trial: Trial, question: Question) -> None:
    trial.ask(LINE, question.task, question.token_ids, cuts=question.cuts, max_tokens=question.output, ignore_eos=True)
