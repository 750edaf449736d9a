"""Checkpoints in a folder: a mounted claim (``pvc://``) or any path (``file://``)."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sunfleet_weights.errors import InvalidCheckpoint, WeightsNotFound
from sunfleet_weights.hashing import sha256_file
from sunfleet_weights.progress import Progress
from sunfleet_weights.source import SourceFile

_log = logging.getLogger(__name__)


class LocalFolder:
    """A checkpoint in ``folder``; ``uri`` is what people call it. Links are followed."""

    def __init__(self, uri: str, folder: Path, workers: int) -> None:
        self._uri = uri
        self._folder = folder
        self._workers = workers

    @property
    def uri(self) -> str:
        """The URI as given: a folder has no revisions, its digest tells its content."""
        return self._uri

    def files(self) -> Sequence[SourceFile]:
        """Every readable file of the top folder. Raises :class:`.errors.WeightsNotFound`."""
        try:
            entries = sorted(entry for entry in self._folder.iterdir() if entry.is_file())
            return [SourceFile(entry.name, entry.stat().st_size) for entry in entries]
        except FileNotFoundError as error:
            raise WeightsNotFound(
                f"{self._uri}: there is no folder {self._folder}; check the path in the claim"
            ) from error
        except NotADirectoryError as error:
            raise WeightsNotFound(f"{self._uri} is a file; name the folder that holds it") from error
        except PermissionError as error:
            raise _unreadable(self._uri, error) from error

    def read(self, path: str) -> bytes:
        """A small file."""
        try:
            return (self._folder / path).read_bytes()
        except OSError as error:
            raise _unreadable(self._uri, error) from error

    def hashes(self, files: Sequence[SourceFile]) -> Mapping[str, str]:
        """Read everything, a few files at a time, largest first."""
        total = sum(file.size for file in files)
        _log.info("hashing %d files of %s (%.1f GB)", len(files), self._uri, total / 1e9)
        progress = Progress("hashed", total)
        order = sorted(files, key=lambda file: -file.size)

        def one(file: SourceFile) -> tuple[str, str]:
            return file.path, sha256_file(self._folder / file.path, progress.add)

        try:
            with ThreadPoolExecutor(min(self._workers, os.cpu_count() or 1)) as threads:
                return dict(threads.map(one, order))
        except OSError as error:
            raise _unreadable(self._uri, error) from error

    @property
    def folder(self) -> str:
        """The top."""
        return ""

    def prepare(self, folder: Path) -> None:
        """Nothing is packed."""

    def save(self, file: SourceFile, folder: Path) -> None:
        """Copy a file, under another name until it is whole."""
        target = folder / file.path
        if target.exists():
            return
        part = target.with_name(target.name + ".part")
        source = self._folder / file.path
        try:
            shutil.copyfile(source, part)
        except OSError as error:
            if error.filename == str(source):
                raise _unreadable(self._uri, error) from error
            raise  # of the target
        part.rename(target)


def _unreadable(uri: str, error: OSError) -> InvalidCheckpoint:
    return InvalidCheckpoint(f"{uri}: {error}. The files must be readable by user 65532 (chmod -R a+rX).")
