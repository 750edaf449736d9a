"""A folder that pods share: one download per digest, whoever asks first; what no pod uses goes when room is needed.

::

    CACHE/sha256-HEX/          a whole checkpoint; the time of its marker is when a pod last used it
    CACHE/.partial/sha256-HEX/ one on its way, which goes on where it was after any interruption
    CACHE/.locks/              one lock per digest (held while it is downloaded), and one for looking and removing

Every pod that uses a checkpoint says so once a minute (:mod:`.hold`), so *in use* needs no lock that outlives a
process, and a volume without locks across nodes loses only the single download, never a file that is read.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from sunfleet_weights.errors import NotEnoughSpace, TargetInUse
from sunfleet_weights.fetch import fetched_size, is_fetched
from sunfleet_weights.hold import MARKER, USED_WITHIN_SECONDS

_log = logging.getLogger(__name__)
_PARTIAL: Final = ".partial"
_LOCKS: Final = ".locks"
_PREFIX: Final = "sha256-"


def entry_name(digest: str) -> str:
    """Name of a digest's folder; ``digest`` is ``sha256:HEX``."""
    return digest.replace(":", "-")


@dataclass(frozen=True)
class Cache:
    """The shared folder and how much it may hold."""

    root: Path
    limit: int  # bytes

    def entry(self, digest: str) -> Path:
        """Where the checkpoint of a digest lies once it is whole."""
        return self.root / entry_name(digest)

    def fill(self, digest: str, size: int, download: Callable[[Path], None]) -> Path:
        """The checkpoint's folder. ``download`` fills a folder and runs only where nobody else has done it or does it
        now. ``size`` is what it will take, in bytes.
        """
        if self._claim(digest):
            return self.entry(digest)
        with self._locked(entry_name(digest), "another pod downloads it"):
            if not self._claim(digest):  # by whoever had the lock before
                self._make_room(digest, size)
                partial = self.root / _PARTIAL / entry_name(digest)
                partial.mkdir(parents=True, exist_ok=True)
                download(partial)
                self._publish(partial, digest)
        return self.entry(digest)

    def _claim(self, digest: str) -> bool:
        """Whether the checkpoint is here and whole; then it counts as used from now on."""
        with self._locked("all"):
            entry = self.entry(digest)
            if not is_fetched(entry):
                return False
            os.utime(entry / MARKER)
            return True

    def _publish(self, partial: Path, digest: str) -> None:
        with self._locked("all"):
            entry = self.entry(digest)
            if entry.exists():  # not whole, or it would have been claimed
                _remove(entry, self.root)
            partial.replace(entry)
            os.utime(entry / MARKER)
        _log.info("%s is in the cache", digest)

    def _make_room(self, digest: str, size: int) -> None:
        """Remove what was used longest ago until ``size`` bytes fit into limit and volume."""
        if size > self.limit:
            raise NotEnoughSpace(
                f"the checkpoint takes {_gb(size)}, but cache.sizeLimit is {_gb(self.limit)}: raise it"
            )
        with self._locked("all"):
            self._drop_remains(digest)
            held = {path: (_last_used(path), _taken(path)) for path in self._entries()}
            idle = sorted(
                (path for path in held if time.time() - held[path][0] > USED_WITHIN_SECONDS),
                key=lambda path: held[path][0],
            )
            while self._lacks(size, sum(taken for _, taken in held.values()), self._partial(digest)):
                if not idle:
                    raise NotEnoughSpace(self._full(size, len(held)))
                oldest = idle.pop(0)
                _log.info("removing %s (%s), which no pod uses", oldest.name, _gb(held.pop(oldest)[1]))
                _remove(oldest, self.root)

    def _lacks(self, size: int, held: int, begun: int) -> bool:
        free = shutil.disk_usage(self.root).free
        return held + size > self.limit or size - begun > free

    def _full(self, size: int, held: int) -> str:
        free = shutil.disk_usage(self.root).free
        return (
            f"{_gb(size)} do not fit into the cache: its limit is {_gb(self.limit)}, its volume has {_gb(free)} free,"
            f" and pods use each of the {held} checkpoints in it: raise cache.sizeLimit and the volume"
        )

    def _entries(self) -> Iterator[Path]:
        return (path for path in self.root.glob(f"{_PREFIX}*") if path.is_dir())

    def _partial(self, digest: str) -> int:
        folder = self.root / _PARTIAL / entry_name(digest)
        return _taken(folder) if folder.is_dir() else 0

    def _drop_remains(self, digest: str) -> None:
        """Downloads of other digests that were given up: nobody holds their lock, and nobody wrote for a while."""
        for folder in (self.root / _PARTIAL).glob(f"{_PREFIX}*"):
            if folder.name != entry_name(digest) and time.time() - _last_written(folder) > USED_WITHIN_SECONDS:
                with self._tried(folder.name) as ours:
                    if ours:
                        _log.info("removing an unfinished download, %s", folder.name)
                        shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def _locked(self, name: str, waits_for: str = "") -> Iterator[None]:
        """Hold a lock, which ends with the process; the log says what it is waited for."""
        with self._lock_file(name) as stream:
            if waits_for and not _try_lock(stream.fileno()):
                _log.info("waiting: %s", waits_for)
            fcntl.flock(stream.fileno(), fcntl.LOCK_EX)
            yield

    @contextmanager
    def _tried(self, name: str) -> Iterator[bool]:
        with self._lock_file(name) as stream:
            yield _try_lock(stream.fileno())

    def _lock_file(self, name: str) -> IO[bytes]:
        """Never removed: two processes must not hold locks on two files of one name."""
        folder = self.root / _LOCKS
        try:
            folder.mkdir(exist_ok=True)
            return (folder / name).open("ab")
        except OSError as error:
            raise TargetInUse(
                f"the cache {self.root} cannot be written ({error}): its volume must be writable for user 65532"
            ) from error


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _last_used(entry: Path) -> float:
    marker = entry / MARKER
    return marker.stat().st_mtime if marker.exists() else 0.0


def _last_written(folder: Path) -> float:
    """Of anything in it; another pod may be at work there, whose files come and go."""
    try:
        return max(path.stat().st_mtime for path in (folder, *folder.rglob("*")))
    except FileNotFoundError:
        return time.time()


def _taken(folder: Path) -> int:
    """Bytes; of a whole checkpoint what its marker says, else what lies there."""
    return fetched_size(folder) or sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _remove(entry: Path, root: Path) -> None:
    """At once for everybody who looks: first out of sight, then file by file."""
    trash = root / _PARTIAL / f"removed-{entry.name}"
    trash.parent.mkdir(exist_ok=True)
    shutil.rmtree(trash, ignore_errors=True)
    entry.replace(trash)
    shutil.rmtree(trash, ignore_errors=True)


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
