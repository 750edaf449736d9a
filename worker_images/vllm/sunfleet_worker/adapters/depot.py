"""The folder that engine and downloader of a pod share: requests go in, whole adapters come out.

Only the downloader has credentials and a way out; it listens on no port, so a request is a file.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from sunfleet_api.pooling import FAILURES, REQUESTS, Failure, Request, WantedAdapter, folder


class Depot:
    """``root`` is ``names.ADAPTERS_PATH`` in a pod."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def ask(self, wanted: WantedAdapter) -> None:
        """Ask for an adapter; again and again does no harm."""
        path = self._request(wanted.digest)
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(Request(uri=wanted.uri, digest=wanted.digest).model_dump_json())
        part.replace(path)

    def find(self, digest: str) -> Path | None:
        """Where an adapter lies, once it is whole."""
        path = self._root / folder(digest)
        return path if path.is_dir() else None

    def failure(self, digest: str) -> Failure | None:
        """Why the last attempt to get an adapter failed."""
        try:
            return Failure.model_validate_json((self._root / FAILURES / f"{folder(digest)}.json").read_bytes())
        except (OSError, ValidationError):
            return None

    def release(self, digest: str) -> None:
        """Nobody needs it any more: the downloader removes what is there."""
        self._request(digest).unlink(missing_ok=True)

    def _request(self, digest: str) -> Path:
        return self._root / REQUESTS / f"{folder(digest)}.json"
