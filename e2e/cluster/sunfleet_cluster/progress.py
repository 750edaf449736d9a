"""What a person sees while something takes long: one line per step with its time; on a terminal the last line also
counts the seconds.
"""

import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_TERMINAL_INTERVAL = 0.5  # seconds between redraws
_WIPE = "\r\x1b[2K"  # what the terminal's last line shows
_PIPE_INTERVAL = 30.0  # seconds between "still at it" lines where nothing can be redrawn


class Step:
    """A running step; `detail` says how far it is and may be set from any thread."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.detail = ""
        self.outcome = ""
        self.started = time.monotonic()

    def heard(self, line: str) -> bool:
        """Show what a program said last; True, so that it counts when the program fails (see `commands.follow`)."""
        self.detail = line.strip() or self.detail
        return True

    def line(self) -> str:
        """The step so far."""
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.title}{detail} ({elapsed(time.monotonic() - self.started)})"


class Progress:
    """Prints steps to `out` (standard error by default, so that standard output stays for results). Steps may overlap,
    from several threads.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._terminal = self._out.isatty()
        self._running: list[Step] = []
        self._lock = threading.Lock()
        self.started = time.monotonic()

    def seconds(self) -> float:
        """Time since it was made."""
        return time.monotonic() - self.started

    def say(self, text: str) -> None:
        """Print a line of its own."""
        with self._lock:
            self._out.write(f"{_WIPE if self._terminal and self._running else ''}{text}\n")
            self._out.flush()

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Show `title` as running inside the block, and its time afterwards."""
        step, done = Step(title), threading.Event()
        with self._lock:
            self._running.append(step)
        ticker = threading.Thread(target=self._tick, args=(step, done), daemon=True)
        ticker.start()
        try:
            yield step
        except BaseException:
            self._finish(step, ticker, done, f"  ✗ {step.line()}")
            raise
        outcome = f": {step.outcome}" if step.outcome else ""
        self._finish(step, ticker, done, f"  ✓ {title}{outcome} ({elapsed(time.monotonic() - step.started)})")

    def _tick(self, step: Step, done: threading.Event) -> None:
        while not done.wait(_TERMINAL_INTERVAL if self._terminal else _PIPE_INTERVAL):
            with self._lock:
                if not self._terminal:
                    self._out.write(f"  … {step.line()}\n")
                elif self._running[:1] == [step]:  # one redraws for all
                    line = f"  … {'; '.join(each.line() for each in self._running)}"
                    # A line that wraps could not be wiped again.
                    self._out.write(f"{_WIPE}{line[: shutil.get_terminal_size().columns - 1]}")
                self._out.flush()

    def _finish(self, step: Step, ticker: threading.Thread, done: threading.Event, line: str) -> None:
        done.set()
        ticker.join()
        self.say(line)
        with self._lock:
            self._running.remove(step)


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
