"""The queues between an engine's processes: a reader spins for a second after each message before it sleeps.

An engine that steps more often than once a second thus keeps a core busy in each of two processes, whether or not there
is anything to do. That is right where cores outnumber engines; on a small machine the waiting processes take the time
of those that they wait for. A sleeping reader is woken through a socket, a tenth of a millisecond later.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from vllm.distributed.device_communicators import shm_broadcast

# Answers within a step come sooner than this on an idle machine.
SPIN_SECONDS: Final = 0.0005


def shorten_spinning(seconds: float = SPIN_SECONDS) -> None:
    """Let readers that are made from now on, here and in forks of this process, sleep sooner. Idempotent."""
    if not isinstance(shm_broadcast.SpinCondition, partial):
        shm_broadcast.SpinCondition = partial(shm_broadcast.SpinCondition, busy_loop_s=seconds)
