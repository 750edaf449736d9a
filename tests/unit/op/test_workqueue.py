"""The work queue and its backoff."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from sunfleet_operator import backoff
from sunfleet_operator.workqueue import WorkQueue


@pytest.fixture
async def queue() -> AsyncIterator[WorkQueue[str]]:
    made: WorkQueue[str] = WorkQueue(first_delay=0.01, max_delay=0.05, rand=lambda: 0.0, expected=OSError)
    yield made
    made.close()


class Recorder:
    """A handler that notes what ran and how many ran at once, and waits until it is let go."""

    def __init__(self, *failures: BaseException) -> None:
        self.ran: list[str] = []
        self.at_once = self.most = 0
        self.gate = asyncio.Event()
        self.failures = list(failures)
        self.again: float | None = None

    async def __call__(self, key: str) -> float | None:
        self.ran.append(key)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await self.gate.wait()
            if self.failures:
                raise self.failures.pop(0)
            return self.again
        finally:
            self.at_once -= 1


async def _run(queue: WorkQueue[str], handler: Recorder, *, workers: int = 4, seconds: float = 0.2) -> None:
    tasks = [asyncio.create_task(queue.work(handler)) for _ in range(workers)]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_key_waits_once_however_often_it_is_added(queue: WorkQueue[str]) -> None:
    handler = Recorder()
    handler.gate.set()
    for _ in range(5):
        queue.add("a")
    await _run(queue, handler)
    assert handler.ran == ["a"]


async def test_a_key_never_runs_twice_at_once_and_is_run_again_when_added_meanwhile(queue: WorkQueue[str]) -> None:
    handler = Recorder()
    queue.add("a")
    running = asyncio.create_task(_run(queue, handler))
    await asyncio.sleep(0.05)
    queue.add("a")
    queue.add("a")
    await asyncio.sleep(0.05)
    assert (handler.ran, handler.most) == (["a"], 1)
    handler.gate.set()
    await running
    assert (handler.ran, handler.most) == (["a", "a"], 1)


async def test_different_keys_run_at_once(queue: WorkQueue[str]) -> None:
    handler = Recorder()
    for key in "abcdef":
        queue.add(key)
    await _run(queue, handler, workers=3)
    assert handler.most == 3


@pytest.mark.parametrize("failure", [OSError("gone"), ValueError("fault")])
async def test_a_failure_comes_back_and_ends_no_worker(queue: WorkQueue[str], failure: Exception) -> None:
    handler = Recorder(failure, failure)
    handler.gate.set()
    queue.add("a")
    await _run(queue, handler, workers=1)
    assert handler.ran == ["a", "a", "a"]


async def test_a_success_may_ask_to_come_back(queue: WorkQueue[str]) -> None:
    handler = Recorder()
    handler.again = 0.05
    handler.gate.set()
    queue.add("a")
    await _run(queue, handler, seconds=0.13)
    assert 2 <= len(handler.ran) <= 3


async def test_of_several_timers_the_earliest_counts(queue: WorkQueue[str]) -> None:
    handler = Recorder()
    handler.gate.set()
    queue.add_after("a", 10)
    queue.add_after("a", 0.02)
    queue.add_after("a", 5)
    await _run(queue, handler)
    assert handler.ran == ["a"]


async def test_it_counts_as_stalled_only_while_there_is_work() -> None:
    now = [0.0]
    queue: WorkQueue[str] = WorkQueue(first_delay=1, max_delay=1, clock=lambda: now[0])
    now[0] = 100
    assert queue.stalled_for() == 0
    queue.add("a")
    now[0] = 130
    assert queue.stalled_for() == 30


def test_backoff_doubles_to_its_limit() -> None:
    assert [backoff.delay(n, first=1, maximum=10) for n in (1, 2, 3, 4, 5, 5000)] == [1, 2, 4, 8, 10, 10]


def test_jitter_shortens_by_half_at_most() -> None:
    assert backoff.delay(1, first=1, maximum=10, jitter=0.999) == pytest.approx(0.5, abs=0.01)
