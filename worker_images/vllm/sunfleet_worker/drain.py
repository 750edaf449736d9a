"""SIGTERM: stop taking work, let what runs finish, then stop the engine and exit 0.

The order of a pod's end: preStop sleeps while the pod leaves every router's list; SIGTERM; ``readyz`` 503 and new
requests refused; requests in flight go on for at most ``drain_timeout_seconds``; on a prefill pod also KV that a
decoder has not read yet; what is left is aborted with an error, never with an ordinary end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from sunfleet_worker.frontend.gate import Traffic

logger = logging.getLogger(f"vllm.{__name__}")  # the engine configures the loggers below this name

_POLL_SECONDS = 0.2
# How long aborted requests may take to tell their clients.
_GRACE_SECONDS = 5.0


async def drain(
    traffic: Traffic, kv_in_use: Callable[[], float], abort: Callable[[], Awaitable[None]], seconds: float
) -> None:
    """Return when nothing of this pod is needed any more, or after ``seconds``.

    Args:
        traffic: counts the requests in flight, and refuses new ones from now on.
        kv_in_use: share of the KV pool that requests hold, 0 when none does.
        abort: ends every request that is still running.
        seconds: how long to wait at most.
    """
    traffic.draining = True
    logger.info("Draining: %d requests in flight, at most %.0f s.", traffic.in_flight, seconds)
    try:
        async with asyncio.timeout(seconds):
            await traffic.idle()
            await _until(lambda: kv_in_use() <= 0)
    except TimeoutError:
        logger.warning("Drain time is over with %d requests in flight; they end with an error.", traffic.in_flight)
        await abort()
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_SECONDS):
                await traffic.idle()
    else:
        logger.info("Drained.")


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the engine reports its pool through a gauge, not an event
        await asyncio.sleep(_POLL_SECONDS)
