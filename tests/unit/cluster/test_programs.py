"""A program is built when something it depends on changed, and only then."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from io import StringIO
from pathlib import Path

import pytest

from sunfleet_cluster import programs
from sunfleet_cluster.errors import ClusterError
from sunfleet_cluster.programs import Program
from sunfleet_cluster.progress import Progress, Step

FAKE_GO = """\
#!/bin/sh
case "$1" in
version) echo "go version go1.99.0 linux/amd64"; exit 0;;
esac
echo "example.org/some/package" >&2
test -e "$FAIL" && { echo "main.go:3: it does not compile" >&2; exit 1; }
while [ "$1" != -o ]; do shift; done
echo built >> "$BUILDS"
echo program > "$2"
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of Go modules with one program, and a compiler that only pretends."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "go").write_text(FAKE_GO)
    (tools / "go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("BUILDS", str(tmp_path / "builds"))
    monkeypatch.setenv("FAIL", str(tmp_path / "fail"))
    folder = tmp_path / "go" / "tool"
    folder.mkdir(parents=True)
    (folder / "go.mod").write_text("module example.org/tool\n\ngo 1.24.0\n")
    (folder / "main.go").write_text("package main")
    monkeypatch.setattr(programs, "GO_MODULES", tmp_path / "go")
    return folder


def build(tmp_path: Path) -> int:
    """Build the one program; how many builds there have been."""
    programs.build([Program("tool", "tool", ".")], tmp_path / "bin", Progress(StringIO()))
    builds = tmp_path / "builds"
    return len(builds.read_text().splitlines()) if builds.exists() else 0


def test_an_unchanged_program_is_built_once(module: Path, tmp_path: Path) -> None:
    assert build(tmp_path) == 1
    assert build(tmp_path) == 1
    assert (tmp_path / "bin" / "tool").read_text() == "program\n"


@pytest.mark.parametrize("file", ["go.mod", "go.sum", "main.go"])
def test_a_change_of_pins_or_source_builds_it_again(module: Path, tmp_path: Path, file: str) -> None:
    build(tmp_path)
    with (module / file).open("a") as changed:
        changed.write("// more\n")
    assert build(tmp_path) == 2


def test_a_deleted_program_is_built_again(module: Path, tmp_path: Path) -> None:
    build(tmp_path)
    (tmp_path / "bin" / "tool").unlink()
    assert build(tmp_path) == 2


def test_a_change_during_a_build_leaves_the_program_stale(
    module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows which of the two states the compiler saw."""
    run_go = programs._run_go

    def edited(command: list[str], folder: Path, step: Step) -> None:
        run_go(command, folder, step)
        (module / "main.go").write_text("package main // edited")

    monkeypatch.setattr(programs, "_run_go", edited)
    assert build(tmp_path) == 1
    assert programs.stale([Program("tool", "tool", ".")], tmp_path / "bin")


def test_a_build_that_waited_for_another_does_not_build_again(
    module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del module

    @contextmanager
    def after_another(_file: Path, _progress: Progress) -> Iterator[None]:
        monkeypatch.setattr(programs, "exclusive", lambda *_: nullcontext())
        build(tmp_path)
        yield

    monkeypatch.setattr(programs, "exclusive", after_another)
    (tmp_path / "bin").mkdir()
    assert build(tmp_path) == 1


def test_a_build_that_fails_says_why_and_leaves_the_old_program(module: Path, tmp_path: Path) -> None:
    build(tmp_path)
    (tmp_path / "bin" / "tool").write_text("old")
    (module / "main.go").write_text("package broken")
    (tmp_path / "fail").touch()
    with pytest.raises(ClusterError, match="it does not compile"):
        build(tmp_path)
    assert (tmp_path / "bin" / "tool").read_text() == "old"


def test_what_is_built_serves_without_a_compiler(module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert programs.stale([Program("tool", "tool", ".")], tmp_path / "bin") == []


def test_the_needed_go_is_the_newest_that_a_module_asks_for(module: Path, tmp_path: Path) -> None:
    other = tmp_path / "go" / "other"
    other.mkdir()
    (other / "go.mod").write_text("module example.org/other\n\ngo 1.31\n")
    assert programs.required_go() == (1, 31)


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26)),
        ("go version go1.19 linux/amd64", (1, 19)),
        ("go version devel +abc", (0, 0)),
    ],
)
def test_the_compilers_version_is_read(said: str, version: tuple[int, int]) -> None:
    assert programs.parse_go_version(said) == version


def test_every_program_of_the_cluster_has_a_module_in_the_tree() -> None:
    for program in (*programs.EMBEDDED, *programs.KIND, programs.PROBE):
        assert (program.folder / "go.mod").is_file()
        assert program.key("go") == program.key("go")
