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

    def save(self, file: SourceFile, folder: Path) -> None:
        """Put a file to ``folder / file.path``; a file that is there already counts as done."""
