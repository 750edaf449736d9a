"""Content hashes of files, read in large pieces."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

_PIECE = 8 << 20


def sha256_file(path: Path, on_bytes: Callable[[int], None] = lambda _: None) -> str:
    """SHA-256 hex; ``on_bytes`` is told about every piece."""
    return _feed(hashlib.sha256(), path, on_bytes)


def git_oid_file(path: Path) -> str:
    """SHA-1 hex of the file as a git blob: how a hub names what is not in large-file storage."""
    digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    return _feed(digest, path, lambda _: None)


def _feed(digest: "hashlib._Hash", path: Path, on_bytes: Callable[[int], None]) -> str:  # noqa: UP037
    with path.open("rb", buffering=0) as stream:
        while piece := stream.read(_PIECE):
            digest.update(piece)
            on_bytes(len(piece))
    return digest.hexdigest()
