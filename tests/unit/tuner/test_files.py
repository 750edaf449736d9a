"""Folders are written whole, and nothing but a checkpoint is ever replaced."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sunfleet_tuner.files import whole_folder


def write(target: Path, content: str) -> None:
    with whole_folder(target) as draft:
        (draft / "config.json").write_text(content)
        (draft / "config.json").chmod(0o600)


def test_a_folder_appears_whole_and_readable_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "made"
    with pytest.raises(RuntimeError):
        fail(target)
    assert list(tmp_path.iterdir()) == []
    for content in ("one", "two"):
        write(target, content)
    assert (target / "config.json").read_text() == "two"
    assert (target / "config.json").stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [target]


def fail(target: Path) -> None:
    with whole_folder(target) as draft:
        (draft / "half").touch()
        raise RuntimeError


@pytest.mark.parametrize("entry", ["thesis.tex", ".git/config", "config.json/x"])
def test_a_folder_that_is_no_checkpoint_is_never_replaced(tmp_path: Path, entry: str) -> None:
    target = tmp_path / "home"
    (target / entry).parent.mkdir(parents=True)
    (target / entry).write_text("years of work")
    with pytest.raises(FileExistsError, match="something else than a checkpoint"):
        write(target, "one")
    assert (target / entry).read_text() == "years of work"
    assert list(tmp_path.iterdir()) == [target]


def test_an_empty_folder_is_taken_and_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write(tmp_path / "empty", "one")
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="is a file"):
        write(tmp_path / "file", "one")


@pytest.mark.parametrize("killed_at", [0, 1, 2])
def test_a_run_killed_at_any_step_leaves_the_old_or_the_new_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: int
) -> None:
    target = tmp_path / "made"
    write(target, "old")
    rename, renames = Path.rename, iter(range(9))

    def killed(self: Path, other: Path) -> Path:
        if next(renames) == killed_at:
            raise KeyboardInterrupt
        return rename(self, other)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", killed)
        patched.setattr(shutil, "rmtree", lambda *_, **__: None)  # a killed process tidies nothing
        if killed_at < 2:
            with pytest.raises(KeyboardInterrupt):
                write(target, "new")
        else:
            write(target, "new")
    with pytest.raises(RuntimeError):
        fail(target)
    assert (target / "config.json").read_text() == ("new" if killed_at == 2 else "old")
    assert list(tmp_path.iterdir()) == [target]
