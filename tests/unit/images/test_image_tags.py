"""A tag changes when an input of the image changes, and only then."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from sunfleet_cluster.images.tags import TAG_LENGTH, BuildInputs, hash_files

INPUTS = BuildInputs(
    dockerfile="FROM base\n", requirements="a==1\n", files={"a.py": "-00"}, base="base:1", args={"VERSION": "1"}
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    package = tmp_path / "room" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('"""A package."""\n')
    (package / "code.py").write_text("ONE = 1\n")
    return tmp_path


def tag_of(tree: Path) -> str:
    return replace(INPUTS, files=hash_files(tree, [Path("room/package")])).tag()


@pytest.mark.parametrize(
    "other",
    [
        replace(INPUTS, dockerfile="FROM base\nUSER 1\n"),
        replace(INPUTS, requirements="a==2\n"),
        replace(INPUTS, files={"a.py": "-01"}),
        replace(INPUTS, files={"b.py": "-00"}),
        replace(INPUTS, files={}),
        replace(INPUTS, base="base:2"),
        replace(INPUTS, args={"VERSION": "2"}),
        replace(INPUTS, args={}),
    ],
)
def test_every_input_counts(other: BuildInputs) -> None:
    assert other.tag() != INPUTS.tag()


def test_a_tag_is_the_same_for_the_same_inputs_in_any_order() -> None:
    one = replace(INPUTS, args={"A": "1", "B": "2"})
    assert one.tag() == replace(INPUTS, args={"B": "2", "A": "1"}).tag()
    assert len(one.tag()) == TAG_LENGTH


def test_a_changed_file_changes_the_tag_and_changing_it_back_restores_it(tree: Path) -> None:
    before, code = tag_of(tree), tree / "room" / "package" / "code.py"
    code.write_text("ONE = 2\n")
    assert tag_of(tree) != before
    code.write_text("ONE = 1\n")
    assert tag_of(tree) == before


def test_a_new_or_renamed_file_changes_the_tag(tree: Path) -> None:
    before, folder = tag_of(tree), tree / "room" / "package"
    (folder / "code.py").rename(folder / "other.py")
    renamed = tag_of(tree)
    (folder / "more.py").touch()
    assert len({before, renamed, tag_of(tree)}) == 3


def test_the_executable_bit_changes_the_tag(tree: Path) -> None:
    before = tag_of(tree)
    (tree / "room" / "package" / "code.py").chmod(0o755)
    assert tag_of(tree) != before


def test_file_times_bytecode_and_neighbours_do_not_change_the_tag(tree: Path) -> None:
    before, package = tag_of(tree), tree / "room" / "package"
    os.utime(package / "code.py", (1, 1))
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "code.cpython-311.pyc").write_bytes(b"bytecode")
    (tree / "room" / "neighbour.py").touch()
    assert tag_of(tree) == before


def test_a_missing_source_is_named(tree: Path) -> None:
    with pytest.raises(FileNotFoundError, match="room/nothing"):
        hash_files(tree, [Path("room/nothing")])
