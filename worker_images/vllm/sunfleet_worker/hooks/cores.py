"""Which CPUs the model worker's thread runs on.

On CPU engines NIXL's connector binds the thread that makes it to the last core of each NUMA node of the machine, to
keep transfers apart from the model. But that thread is the one that runs the model: every engine of a machine would
compute on the same core, while the others idle.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cores_kept() -> Iterator[None]:
    """Give this thread the CPUs back that it had before, whatever happens to them inside.

    Threads that are started inside keep what they were given.
    """
    before = os.sched_getaffinity(0)
    try:
        yield
    finally:
        if os.sched_getaffinity(0) != before:
            os.sched_setaffinity(0, before)
