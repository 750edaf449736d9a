"""What the fake hub holds: repositories, commits, branches. In memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Visibility = Literal["public", "private", "gated"]
_LARGE = (".safetensors", ".bin", ".model")  # kept in large-file storage, as on the hub


@dataclass(frozen=True)
class Blob:
    """One file's content."""

    content: bytes
    large: bool

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def git_oid(self) -> str:
        head = f"blob {len(self.content)}\0".encode()
        return hashlib.sha1(head + self.content, usedforsecurity=False).hexdigest()

    @property
    def etag(self) -> str:
        """SHA-256 for large files, git's object id for the others."""
        return self.sha256 if self.large else self.git_oid


@dataclass
class Repository:
    """Commits by id, branches and tags by name."""

    visibility: Visibility = "public"
    commits: dict[str, dict[str, Blob]] = field(default_factory=dict)
    references: dict[str, str] = field(default_factory=dict)

    def commit(self, files: Mapping[str, bytes], branch: str) -> str:
        """A new commit that holds exactly these files; its id."""
        blobs = {path: Blob(content, path.endswith(_LARGE)) for path, content in files.items()}
        identity = json.dumps({path: blob.sha256 for path, blob in sorted(blobs.items())})
        sha = hashlib.sha1(identity.encode(), usedforsecurity=False).hexdigest()
        self.commits[sha] = blobs
        self.references[branch] = sha
        return sha

    def find(self, revision: str) -> str | None:
        """The commit that a branch, tag or commit id names."""
        return revision if revision in self.commits else self.references.get(revision)

    def info(self, name: str, sha: str) -> dict[str, Any]:
        """The hub's answer about one commit, with file metadata."""
        return {
            "id": name,
            "modelId": name,
            "sha": sha,
            "private": self.visibility == "private",
            "gated": "manual" if self.visibility == "gated" else False,
            "siblings": [_sibling(path, blob) for path, blob in sorted(self.commits[sha].items())],
        }


def _sibling(path: str, blob: Blob) -> dict[str, Any]:
    size = len(blob.content)
    plain = {"rfilename": path, "size": size, "blobId": blob.git_oid}
    return {**plain, "lfs": {"sha256": blob.sha256, "size": size, "pointerSize": 134}} if blob.large else plain
