"""The models folder of demo and tests: ``base``, ``adapters/TASK`` and ``arith-full``."""

from __future__ import annotations

import filecmp
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sunfleet_api.files import META_FILE
from sunfleet_tuner.checkpoint import checkpoint_digest, read_meta
from sunfleet_tuner.files import whole_folder
from sunfleet_tuner.merge import merge
from sunfleet_tuner.samples.base import make_base

FULL_TASK: Final = "arith"  # the task whose adapter is also merged into full weights


def make_models(target: Path, adapters: Path, say: Callable[[str], None]) -> None:
    """Make what is missing or older than the adapters in ``adapters`` (one folder per task)."""
    base, full = target / "base", target / f"{FULL_TASK}-full"
    say(f"{'made' if make_base(base) else 'kept'} {base}")
    digest = checkpoint_digest(base)
    for source in sorted(path.parent for path in adapters.glob(f"*/{META_FILE}")):
        _check_decoder(source, digest)
        copied = target / "adapters" / source.name
        if _same(source, copied):
            say(f"kept {copied}")
            continue
        if source.name == FULL_TASK:
            _forget(full)  # before the adapter it is merged from is replaced, or a killed run would keep it for ever
        with whole_folder(copied) as draft:
            shutil.copytree(source, draft, dirs_exist_ok=True)
        say(f"copied {copied}")
    if not full.exists():
        merge(base, target / "adapters" / FULL_TASK, full)
        say(f"merged {full}")


def _forget(folder: Path) -> None:
    """Delete a folder so that a killed run leaves the whole of it or nothing under its name."""
    gone = folder.with_name(f".{folder.name}.gone")
    shutil.rmtree(gone, ignore_errors=True)
    if folder.exists():
        folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def _check_decoder(adapter: Path, digest: str) -> None:
    """The operator would refuse to serve an adapter behind another decoder than its own."""
    tuned_against = read_meta(adapter).tuned_against
    if tuned_against != digest:
        raise ValueError(
            f"{adapter} was tuned against decoder {tuned_against}, but the base model made here is {digest}: "
            "delete its folder to have it made anew, or tune the adapter again (docs/tuning.md)"
        )


def _same(source: Path, copied: Path) -> bool:
    names = [path.name for path in source.iterdir()]
    return copied.is_dir() and filecmp.cmpfiles(source, copied, names, shallow=False)[0] == names
