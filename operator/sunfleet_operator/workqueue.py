"""One queue of keys for all kinds: each key waits once at most, and never runs twice at the same time.

The rules are those of controller-runtime's work queue: a key that is added while it runs is run again afterwards; a
failed key comes back with exponential backoff; a success forgets its failures.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from sunfleet_operator import backoff

K = TypeVar("K", bound=Hashable)
logger = logging.getLogger(__name__)


class WorkQueue(Generic[K]):
    """Keys to work on. Not thread-safe: everything runs on one event loop."""

    def __init__(
        self,
        *,
        first_delay: float,
        max_delay: float,
        rand: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
        expected: type[Exception] | tuple[type[Exception], ...] = (),
    ) -> None:
        self._ready: deque[K] = deque()
        self._waiting: set[K] = set()  # in _ready, or to be put there once its run ends
        self._running: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._wakeup = asyncio.Event()
        self._first, self._max, self._rand, self._clock = first_delay, max_delay, rand, clock
        self._expected = expected  # errors that the world makes, not the code: no stack trace
        self.last_progress = clock()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._running)

    def stalled_for(self) -> float:
        """Seconds since a worker last finished something although there was something to do; 0 when idle."""
        if not (self._waiting or self._running):
            return 0.0
        return self._clock() - self.last_progress

    def add(self, key: K) -> None:
        """Run ``key`` as soon as a worker is free; a no-op when it is already waiting."""
        if key in self._waiting:
            return
        if not (self._waiting or self._running):
            self.last_progress = self._clock()  # idle time is not a stall
        self._waiting.add(key)
        if key not in self._running:
            self._ready.append(key)
            self._wakeup.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Add ``key`` later. Of several timers for one key the earliest counts."""
        if seconds <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        known = self._timers.get(key)
        if known is not None:
            if known.when() <= loop.time() + seconds:
                return
            known.cancel()
        self._timers[key] = loop.call_later(seconds, self._fire, key)

    def _fire(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    async def _take(self) -> K:
        while not self._ready:
            self._wakeup.clear()
            await self._wakeup.wait()
        key = self._ready.popleft()
        self._waiting.discard(key)
        self._running.add(key)
        return key

    def _done(self, key: K) -> None:
        self._running.discard(key)
        self.last_progress = self._clock()
        if key in self._waiting:  # added while it ran
            self._ready.append(key)
            self._wakeup.set()

    def succeeded(self, key: K) -> None:
        self._failures.pop(key, None)

    def failed(self, key: K) -> float:
        """Count a failure and add the key again after its backoff, which is returned (seconds)."""
        count = self._failures[key] = self._failures.get(key, 0) + 1
        seconds = backoff.delay(count, first=self._first, maximum=self._max, jitter=self._rand())
        self.add_after(key, seconds)
        return seconds

    async def work(self, handle: Callable[[K], Awaitable[float | None]]) -> None:
        """One worker, for ever. ``handle`` returns after how many seconds the key is due again, or ``None``."""
        while True:
            key = await self._take()
            try:
                again = await handle(key)
            except self._expected as error:
                logger.warning("%s: %s; trying again in %.1f s", key, error, self.failed(key))
            except Exception:  # a fault of one object must not end the worker; it is logged and tried again
                logger.exception("%s failed, trying again in %.1f s", key, self.failed(key))
            else:
                self.succeeded(key)
                if again is not None:
                    self.add_after(key, again)
            finally:
                self._done(key)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
