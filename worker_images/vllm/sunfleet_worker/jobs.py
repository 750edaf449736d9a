"""Work beside the server, for as long as a pod lives. None may end unnoticed: the pod would look well without it."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Coroutine

logger = logging.getLogger(f"vllm.{__name__}")  # the engine configures the loggers below this name


def started(name: str, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
    """Runs from now on. If it fails this process is told to end (SIGINT), and kubelet starts the pod's engine again."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_end_if_it_failed)
    return task


def _end_if_it_failed(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        logger.critical("The pod cannot go on without %s, which failed; it ends.", task.get_name(), exc_info=error)
        signal.raise_signal(signal.SIGINT)
