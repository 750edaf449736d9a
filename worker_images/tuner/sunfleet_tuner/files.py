"""Folders that appear whole or not at all, so that an interrupted run leaves nothing that looks like a checkpoint."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder; when the block succeeds it becomes ``target``, in place of what was there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield draft
        _let_everyone_read(draft)
        if target.exists():
            shutil.rmtree(target)
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _let_everyone_read(folder: Path) -> None:
    """``mkdtemp`` and safetensors make private files; pods read weights as another user."""
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
