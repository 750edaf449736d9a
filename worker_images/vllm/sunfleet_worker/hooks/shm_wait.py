"""The queues between an engine's processes: a reader spins for a second after each message before it sleeps.

An engine that steps more often than once a second thus keeps a core busy in each of two processes, whether or not there
is anything to do. That is right where cores outnumber engines; on a small machine the waiting processes take the time
of those that they wait for. A sleeping reader is woken through a socket, a tenth of a millisecond later.

That socket may lose a call: it holds one, and drops the next while it has not noticed that the last one went out. The
engine's own reader, which rarely sleeps, then sleeps for five seconds. Ours looks again by itself, after a quarter more
of the time that it has waited.
"""

from __future__ import annotations

import time
from typing import Any, Final

from vllm.distributed.device_communicators import shm_broadcast

# Answers within a step come sooner than this on an idle machine.
SPIN_SECONDS: Final = 0.0005
_SHORTEST_MS: Final = 1
_LONGEST_MS: Final = 100


class SleepingCondition(shm_broadcast.SpinCondition):
    """The engine's condition with a short spin and bounded sleeps."""

    def __init__(self, is_reader: bool, context: Any, notify_address: str) -> None:
        super().__init__(is_reader, context, notify_address, SPIN_SECONDS)

    def wait(self, timeout_ms: int | None = None) -> None:
        """As the engine's; returns sooner, with nothing to read, when it is time to look again."""
        longest = longest_sleep(time.monotonic() - self.last_read)
        super().wait(longest if timeout_ms is None else min(timeout_ms, longest))


def longest_sleep(waited: float) -> int:
    """Milliseconds that a reader may sleep which read its last message ``waited`` seconds ago."""
    return min(max(_SHORTEST_MS, int(waited * 1000 / 4)), _LONGEST_MS)


def shorten_spinning() -> None:
    """Let readers that are made from now on, here and in forks of this process, sleep soon. Idempotent."""
    shm_broadcast.SpinCondition = SleepingCondition
