"""One verb at a time per state folder."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sunfleet_cluster.progress import Progress


@contextmanager
def exclusive(file: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock `file` in the block; waits for another holder and says so. The kernel frees it when the holder
    dies, however it dies.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            with progress.step(f"waiting for another run (process {handle.read().strip() or '?'}) that holds {file}"):
                fcntl.flock(handle, fcntl.LOCK_EX)
        handle.seek(0)
        handle.truncate()
        handle.write(str(os.getpid()))
        handle.flush()
        yield
