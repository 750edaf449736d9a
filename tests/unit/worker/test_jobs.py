"""What runs beside the server may not end unnoticed."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from sunfleet_worker import jobs


@pytest.fixture
def interrupts() -> Iterator[list[int]]:
    got: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: got.append(number))
    yield got
    signal.signal(signal.SIGINT, before)


async def _fails() -> None:
    raise RuntimeError("the port is taken")


async def _waits() -> None:
    await asyncio.Event().wait()


async def test_a_job_that_fails_ends_the_process_and_says_why(
    interrupts: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    job = jobs.started("the keeper", _fails())
    with suppress(RuntimeError):
        await job
    await asyncio.sleep(0)
    assert interrupts == [signal.SIGINT]
    (record,) = caplog.records
    assert (record.levelno, "the keeper" in record.message) == (logging.CRITICAL, True)
    assert "the port is taken" in caplog.text


async def test_a_job_that_is_cancelled_or_done_ends_nothing(interrupts: list[int]) -> None:
    waiting, done = jobs.started("one", _waits()), jobs.started("two", asyncio.sleep(0))
    await done
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    await asyncio.sleep(0)
    assert interrupts == []


@pytest.mark.parametrize(
    ("drain", "other", "code"),
    [
        (asyncio.sleep, _waits, 0),
        (_waits, _waits, 1),  # the server ended by itself: the engine died
        (_waits, _fails, 1),
        (_fails, _waits, 1),
        (asyncio.sleep, _fails, 1),
    ],
)
async def test_only_an_end_after_a_drain_is_a_good_one(
    interrupts: list[int], drain: Callable[..., Any], other: Callable[..., Any], code: int
) -> None:
    both = [jobs.started("a job", work(0) if work is asyncio.sleep else work()) for work in (drain, other)]
    await asyncio.sleep(0.01)
    assert jobs.exit_code(both[0], both[1:]) == code
    for job in both:
        job.cancel()
    assert len(interrupts) == [drain, other].count(_fails)
