"""An image's tag: a hash of everything that goes into it and of nothing else."""

import hashlib
import json
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

# Never part of an image: .dockerignore names the same.
_IGNORED_FOLDER = "__pycache__"
_IGNORED_SUFFIXES = {".pyc", ".so"}
TAG_LENGTH = 16


@dataclass(frozen=True)
class BuildInputs:
    """What an image is a function of.

    `files`: hash of every copied file by its path; `base`: the base image's name, whose tag must identify its content.
    """

    dockerfile: str
    requirements: str
    files: Mapping[str, str]
    base: str
    args: Mapping[str, str]

    def tag(self) -> str:
        """`TAG_LENGTH` hexadecimal digits."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:TAG_LENGTH]


def hash_files(root: Path, sources: Iterable[Path]) -> dict[str, str]:
    """Hash of every file below `sources` (relative to `root`), by path.

    Times and owners do not count, the executable bit does.
    """
    return {str(path): _hash_file(root / path) for source in sources for path in _files(root, source)}


def _files(root: Path, source: Path) -> Iterator[Path]:
    top = root / source
    if not top.exists():
        raise FileNotFoundError(f"{source} is copied into an image, but {root} has no such file or folder")
    for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
        ignored = _IGNORED_FOLDER in path.parts or path.suffix in _IGNORED_SUFFIXES
        if path.is_file() and not ignored:
            yield path.relative_to(root)


def _hash_file(path: Path) -> str:
    executable = "x" if path.stat().st_mode & stat.S_IXUSR else "-"
    return executable + hashlib.sha256(path.read_bytes()).hexdigest()
