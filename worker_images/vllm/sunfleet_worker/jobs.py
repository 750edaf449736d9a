"""Work beside the server, for as long as a pod lives. None may end unnoticed: the pod would look well without it."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Coroutine, Iterable
from typing import Final

logger = logging.getLogger(f"vllm.{__name__}")  # the engine configures the loggers below this name

EXIT_FAILED: Final = 1


def started(name: str, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
    """Runs from now on. If it fails this process is told to end (SIGINT), and kubelet starts the pod's engine again."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_end_if_it_failed)
    return task


def exit_code(drain: asyncio.Task[None], others: Iterable[asyncio.Task[None]]) -> int:
    """What the process ends with, once the server has ended: 0 after a drain. Any other end nobody asked for: a job
    failed, or the engine died.
    """
    asked = drain.done() and not any(_error(job) for job in (drain, *others))
    return 0 if asked else EXIT_FAILED


def _error(job: asyncio.Task[None]) -> BaseException | None:
    return job.exception() if job.done() and not job.cancelled() else None


def _end_if_it_failed(task: asyncio.Task[None]) -> None:
    error = _error(task)
    if error is not None:
        logger.critical("The pod cannot go on without %s, which failed; it ends.", task.get_name(), exc_info=error)
        signal.raise_signal(signal.SIGINT)
