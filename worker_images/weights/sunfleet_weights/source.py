"""A place where checkpoints lie, as ``inspect`` and ``fetch`` see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class SourceFile:
    """One file: its relative POSIX path, bytes, and what identifies its content where that is known beforehand."""

    path: str
    size: int
    sha256: str = ""  # lower-case hex
    git_oid: str = ""  # SHA-1 of the git blob, for files that are not in large-file storage
    etag: str = ""  # what an object store calls this very content


class Source(Protocol):
    """One checkpoint, pinned: :attr:`uri` names this very content."""

    @property
    def uri(self) -> str:
        """The resolved URI."""

    def files(self) -> Sequence[SourceFile]:
        """Every file."""

    def read(self, path: str) -> bytes:
        """A small file. Raises :class:`.errors.WeightsError`."""

    def hashes(self, files: Sequence[SourceFile]) -> Mapping[str, str]:
        """Path -> SHA-256 hex of these files."""

    @property
    def folder(self) -> str:
        """Where the files lie in what the URI names, when that is not its top; only images have such folders."""

    def prepare(self, folder: Path) -> None:
        """Unpack into ``folder`` what only exists packed; most sources have nothing to do."""

    def save(self, file: SourceFile, folder: Path) -> None:
        """Put a file to ``folder / file.path``; one that is whole is not loaded again, one that is in part goes on.

        What ``folder`` holds comes from an earlier run with this very :attr:`uri`, or a hash of it is known.
        """
