"""Folders that appear whole or not at all, so that an interrupted run leaves nothing that looks like a checkpoint."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sunfleet_api.files import relevant_files
from sunfleet_api.fingerprint import digest_of_files

# A folder with one of these and nothing but files beside it is a checkpoint; anything else is somebody's and stays.
_CHECKPOINT_FILES = ("config.json", "adapter_config.json")


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder; when the block succeeds it becomes ``target``, in place of the checkpoint that was there.

    One process at a time may write a target. Raises FileExistsError when something else than a checkpoint is there.
    """
    target = target.absolute()
    draft, old = (target.with_name(f".{target.name}.{state}") for state in ("new", "old"))
    if not target.exists() and old.exists():
        old.rename(target)  # a run was killed between the two steps of replacing it
    refuse_foreign(target)
    for leftover in (draft, old):
        shutil.rmtree(leftover, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        yield draft
        _let_everyone_read(draft)
        if target.exists():
            target.rename(old)  # never half deleted under its own name
        draft.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def refuse_foreign(target: Path) -> None:
    """Raises FileExistsError when something else than a checkpoint is at ``target``."""
    if not target.exists():
        return
    if not target.is_dir():
        raise FileExistsError(f"{target} is a file: name a folder to write")
    entries = list(target.iterdir())
    flat = all(entry.is_file() for entry in entries)
    if entries and not (flat and any((target / name).is_file() for name in _CHECKPOINT_FILES)):
        raise FileExistsError(f"{target} holds something else than a checkpoint: name a new or empty folder")


def folder_digest(folder: Path) -> str:
    """``sha256:<hex>`` of a checkpoint or adapter, as the resolver computes it."""
    hashes = {}
    for name in relevant_files(path.name for path in folder.iterdir()):
        with (folder / name).open("rb") as stream:
            hashes[name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return digest_of_files(hashes)


def _let_everyone_read(folder: Path) -> None:
    """safetensors makes private files; pods read weights as another user."""
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
