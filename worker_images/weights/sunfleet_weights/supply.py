"""``python -m sunfleet_weights.supply FOLDER``: brings adapters into a pod while it runs, as the engine asks for them.

It runs beside the engine of a PrefillPool's pod and shares one folder with it (``sunfleet_api.pooling``): a request is
a file, an adapter is a folder that appears whole, a failure is a file with its reason. It holds the credentials, so it
listens on no port. A failed download is tried again; what nobody asks for any more is removed.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from sunfleet_api.pooling import FAILURES, REQUESTS, Failure, Request
from sunfleet_weights.errors import NotEnoughSpace, WeightsError, of_system
from sunfleet_weights.fetch import fetch
from sunfleet_weights.settings import WeightsSettings, from_environment
from sunfleet_weights.sources import opened
from sunfleet_weights.trust import trust

_log = logging.getLogger(__name__)
_PARTIAL: Final = ".partial"
_ENTRY: Final = "sha256-*"
_POLL_SECONDS: Final = 0.5
_AT_A_TIME: Final = 4  # one place that does not answer must not hold up the others
_FIRST_RETRY_SECONDS: Final = 5.0
_LAST_RETRY_SECONDS: Final = 120.0

Download = Callable[[Request, Path], None]


@dataclass
class _Trouble:
    again: float  # when it is tried again
    pause: float


class Supply:
    """``download`` fills a folder or raises :class:`~sunfleet_weights.errors.WeightsError`."""

    def __init__(
        self, root: Path, download: Download, threads: Executor, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._root, self._download, self._threads, self._clock = root, download, threads, clock
        self._running: dict[str, Future[None]] = {}
        self._trouble: dict[str, _Trouble] = {}
        for name in (REQUESTS, FAILURES, _PARTIAL):
            (root / name).mkdir(parents=True, exist_ok=True)

    def step(self) -> None:
        """Begin what is asked for, note what has ended, remove what is not wanted any more."""
        for name in [name for name, future in self._running.items() if future.done()]:
            self._running.pop(name).result()
        asked = {path.stem: path for path in (self._root / REQUESTS).glob("*.json")}
        for name, path in asked.items():
            trouble = self._trouble.get(name)
            waits = trouble is not None and self._clock() < trouble.again
            if name not in self._running and not waits and not (self._root / name).exists():
                self._running[name] = self._threads.submit(self._bring, name, path)
        self._tidy(asked.keys() | self._running.keys())

    def _bring(self, name: str, path: Path) -> None:
        partial, failure = self._root / _PARTIAL / name, self._root / FAILURES / f"{name}.json"
        try:
            raw = _read(path)
            if raw is None:
                return  # taken back before it began
            self._download(Request.model_validate_json(raw), partial)
            partial.replace(self._root / name)
            failure.unlink(missing_ok=True)
        except Exception as error:  # noqa: BLE001 - of place, disk or a library: it is told, and the others go on
            told = of_system(error, str(partial)) if isinstance(error, OSError) else error
            if isinstance(told, NotEnoughSpace):
                shutil.rmtree(partial, ignore_errors=True)  # room for the others, and for the reason
            self._put_off(name, told, failure)
        else:
            self._trouble.pop(name, None)

    def _put_off(self, name: str, error: Exception, failure: Path) -> None:
        before = self._trouble.get(name)
        pause = min(before.pause * 2, _LAST_RETRY_SECONDS) if before else _FIRST_RETRY_SECONDS
        self._trouble[name] = _Trouble(self._clock() + pause, pause)
        reason = error.reason if isinstance(error, WeightsError) else type(error).__name__
        _log.warning("%s: %s: %s", name, reason, error, exc_info=None if isinstance(error, WeightsError) else error)
        with suppress(OSError):  # the disk that is the reason; the log has it
            failure.write_text(Failure(reason=reason, message=str(error)).model_dump_json())

    def _tidy(self, wanted: set[str]) -> None:
        for folder in (*self._root.glob(_ENTRY), *(self._root / _PARTIAL).glob(_ENTRY)):
            if folder.name not in wanted:
                shutil.rmtree(folder, ignore_errors=True)
        for path in (self._root / FAILURES).glob("*.json"):
            if path.stem not in wanted:
                with suppress(OSError):  # the next step tries again
                    path.unlink(missing_ok=True)
        for name in set(self._trouble).difference(wanted):
            del self._trouble[name]


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def downloading(settings: WeightsSettings) -> Download:
    """The real thing: any scheme that is fetched, checked against the digest that was resolved."""

    def download(request: Request, target: Path) -> None:
        with opened(request.uri, "", settings) as source:
            fetch(source, target, "adapter", settings.sunfleet_weights_workers, request.digest)

    return download


def main() -> int:
    """Entry point: until SIGTERM."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # one line per request otherwise
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    with TemporaryDirectory() as scratch:
        try:
            settings = from_environment()
            if settings.sunfleet_weights_ca_file is not None:
                trust(settings.sunfleet_weights_ca_file, settings.ssl_cert_file, Path(scratch))
        except WeightsError as error:
            _log.error("%s: %s", error.reason, error)
            return 1
        supply = Supply(Path(sys.argv[1]), downloading(settings), ThreadPoolExecutor(_AT_A_TIME))
        while not stopped.wait(_POLL_SECONDS):
            supply.step()
    os._exit(0)  # a download under way is safe to leave, and may take long


if __name__ == "__main__":
    sys.exit(main())
