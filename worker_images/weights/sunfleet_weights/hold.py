"""``python -m sunfleet_weights.hold FOLDER``: says once a minute that a cached checkpoint is in use.

It runs beside the engine for the pod's whole life. Standard library only: it must not cost what a download costs.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Final

# A checkpoint that was not said to be in use for so long may be removed.
USED_WITHIN_SECONDS: Final = 900.0
EVERY_SECONDS: Final = 60.0
MARKER: Final = ".sunfleet-fetched.json"


def hold(folder: Path, stopped: threading.Event, every: float = EVERY_SECONDS) -> int:
    """Until told to stop: 0. 1 when the checkpoint is gone, which only somebody else than a cache would do."""
    while True:
        try:
            os.utime(folder / MARKER)
        except FileNotFoundError:
            sys.stderr.write(f"{folder} was removed from the cache although it is in use: delete this pod\n")
            return 1
        if stopped.wait(every):
            return 0


def main() -> int:
    """Entry point."""
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    return hold(Path(sys.argv[1]), stopped)


if __name__ == "__main__":
    sys.exit(main())
