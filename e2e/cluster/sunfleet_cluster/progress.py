"""What a person sees while something takes long: one line per step with its time; on a terminal the last line also
counts the seconds.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_TERMINAL_INTERVAL = 0.5  # seconds between redraws
_PIPE_INTERVAL = 30.0  # seconds between "still at it" lines where nothing can be redrawn


class Step:
    """A running step; `detail` says how far it is and may be set from any thread."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.detail = ""
        self.outcome = ""
        self.started = time.monotonic()

    def line(self) -> str:
        """The step so far."""
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.title}{detail} ({elapsed(time.monotonic() - self.started)})"


class Progress:
    """Prints steps to `out` (standard error by default, so that standard output stays for results)."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._terminal = self._out.isatty()
        self.started = time.monotonic()

    def seconds(self) -> float:
        """Time since it was made."""
        return time.monotonic() - self.started

    def say(self, text: str) -> None:
        """Print a line of its own."""
        self._out.write(f"{text}\n")
        self._out.flush()

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Show `title` as running inside the block, and its time afterwards."""
        step, done = Step(title), threading.Event()
        ticker = threading.Thread(target=self._tick, args=(step, done), daemon=True)
        ticker.start()
        try:
            yield step
        except BaseException:
            self._finish(ticker, done)
            self.say(f"  ✗ {step.line()}")
            raise
        self._finish(ticker, done)
        outcome = f": {step.outcome}" if step.outcome else ""
        self.say(f"  ✓ {title}{outcome} ({elapsed(time.monotonic() - step.started)})")

    def _tick(self, step: Step, done: threading.Event) -> None:
        while not done.wait(_TERMINAL_INTERVAL if self._terminal else _PIPE_INTERVAL):
            self._out.write(f"\r\x1b[2K  … {step.line()}" if self._terminal else f"  … {step.line()}\n")
            self._out.flush()

    def _finish(self, ticker: threading.Thread, done: threading.Event) -> None:
        done.set()
        ticker.join()
        if self._terminal:
            self._out.write("\r\x1b[2K")


def elapsed(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min 05 s`, `2 h 10 min`, `3 d 4 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"
