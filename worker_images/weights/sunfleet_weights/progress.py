"""Progress as plain log lines, since nobody watches a terminal in a pod."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from sunfleet_api.worker import progress_line

_log = logging.getLogger(__name__)
_EVERY_SECONDS = 5.0


class Progress:
    """Counts bytes from any thread; logs at most every five seconds."""

    def __init__(self, verb: str, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._verb = verb
        self._total = total
        self._clock = clock
        self._done = 0
        self._started = self._logged = clock()
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        """``count`` more bytes are done; negative when they have to be done again."""
        with self._lock:
            self._done += count
            now = self._clock()
            if now - self._logged < _EVERY_SECONDS:
                return
            self._logged = now
            line = self.line(now)
        _log.info("%s", line)

    def line(self, now: float) -> str:
        """For example ``hashed 1.2 of 16.1 GB (7 %), 240 MB/s, 62 s left``."""
        rate = self._done / max(now - self._started, 1e-9)
        left = f", {(self._total - self._done) / rate:.0f} s left" if rate > 0 else ""
        return f"{progress_line(self._verb, self._done, self._total)}, {rate / 1e6:.0f} MB/s{left}"
