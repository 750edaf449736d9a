"""Only what is missing is built, and only what the cluster lacks is copied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

import pytest

from sunfleet_cluster.errors import ClusterError
from sunfleet_cluster.images.builders import BuildRequest
from sunfleet_cluster.images.catalog import Image
from sunfleet_cluster.images.pipeline import Workshop, forget_replaced, prepare, remove_leftovers
from sunfleet_cluster.images.records import read_refs, record_refs, recorded
from sunfleet_cluster.progress import Progress
from sunfleet_cluster.state import StateFolder

ONE, TWO = Image("one", Path("one/Dockerfile"), "router"), Image("two", Path("two/Dockerfile"), "")


@dataclass
class FakeBuilder:
    """A store that remembers what was done; `during_build` runs while it builds."""

    name: str = "fake"
    pulls: bool = False
    store: set[str] = field(default_factory=set)
    built: list[str] = field(default_factory=list)
    during_build: Callable[[], None] = lambda: None

    def has(self, ref: str) -> bool:
        return ref in self.store

    def import_rootfs(self, archive: Path, ref: str) -> None:
        self.store.add(ref)

    def build(self, request: BuildRequest) -> None:
        self.during_build()
        self.built.append(request.ref)
        self.store.add(request.ref)

    def remove(self, ref: str) -> None:
        self.store.remove(ref)

    def save(self, ref: str, archive: Path) -> None:
        archive.write_text(ref)


@dataclass
class FakeCluster:
    """An image store; `broken` refuses every archive."""

    images: set[str] = field(default_factory=set)
    broken: bool = False

    def has_image(self, ref: str) -> bool:
        return ref in self.images

    def load_image(self, archive: Path) -> None:
        if self.broken:
            raise ClusterError("no space left")
        self.images.add(archive.read_text())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("one", "two"):
        folder = tmp_path / "tree" / name
        folder.mkdir(parents=True)
        (folder / "Dockerfile").write_text(f"FROM base\nCOPY {name}/code.py /app/\n")
        (folder / "code.py").write_text("ONE = 1\n")
    (tmp_path / "tree" / "pyproject.toml").write_text('[project]\nversion = "1.0"\n')
    return tmp_path / "tree"


@pytest.fixture
def builder() -> FakeBuilder:
    return FakeBuilder()


@pytest.fixture
def workshop(root: Path, builder: FakeBuilder) -> Workshop:
    return Workshop(root, StateFolder(root.parent / "state"), builder, "base:1", lambda _: "a==1\n", {}, Progress())


def write(path: Path, text: str) -> None:
    path.write_text(text)


def test_the_first_run_builds_and_loads_everything(workshop: Workshop, builder: FakeBuilder) -> None:
    cluster = FakeCluster()
    refs = prepare(workshop, [ONE, TWO], cluster)
    assert set(refs) == {"one", "two"}
    assert cluster.images == set(refs.values()) == set(builder.built)


def test_the_second_run_does_nothing(workshop: Workshop, builder: FakeBuilder) -> None:
    cluster = FakeCluster()
    refs = prepare(workshop, [ONE, TWO], cluster)
    builder.built.clear()
    assert prepare(workshop, [ONE, TWO], cluster) == refs
    assert not builder.built


def test_a_changed_source_rebuilds_its_image_alone(workshop: Workshop, builder: FakeBuilder) -> None:
    cluster = FakeCluster()
    before = prepare(workshop, [ONE, TWO], cluster)
    (workshop.root / "one" / "code.py").write_text("ONE = 2\n")
    builder.built.clear()
    after = prepare(workshop, [ONE, TWO], cluster)
    assert builder.built == [after["one"]]
    assert after["two"] == before["two"]


def test_a_new_cluster_gets_what_was_built_before(workshop: Workshop, builder: FakeBuilder) -> None:
    prepare(workshop, [ONE], FakeCluster())
    builder.built.clear()
    cluster = FakeCluster()
    assert set(prepare(workshop, [ONE], cluster).values()) == cluster.images
    assert not builder.built


def test_an_image_in_the_cluster_needs_no_builder(workshop: Workshop, builder: FakeBuilder) -> None:
    ref = workshop.ref(ONE)
    prepare(workshop, [ONE], FakeCluster({ref}))
    assert not builder.built


def test_without_a_cluster_images_are_only_built(workshop: Workshop, builder: FakeBuilder) -> None:
    refs = prepare(workshop, [ONE], None)
    assert builder.built == [refs["one"]]


def test_no_archive_is_left_behind_even_when_loading_fails(workshop: Workshop) -> None:
    with pytest.raises(ClusterError, match="no space left"):
        prepare(workshop, [ONE], FakeCluster(broken=True))
    assert not list(workshop.state.images.glob("*.tar"))


def test_a_source_that_changes_during_its_build_is_built_again_and_leaves_no_lying_tag(
    workshop: Workshop, builder: FakeBuilder
) -> None:
    builder.during_build = lambda: write(workshop.root / "one" / "code.py", "ONE = 3\n")
    refs = prepare(workshop, [ONE], None)
    assert builder.store == {refs["one"]} == {workshop.ref(ONE)}
    assert len(builder.built) == 2


def test_a_source_that_never_stands_still_is_given_up(workshop: Workshop, builder: FakeBuilder) -> None:
    builder.during_build = lambda: write(workshop.root / "one" / "code.py", f"ONE = {len(builder.built)}0\n")
    with pytest.raises(ClusterError, match="one change"):
        prepare(workshop, [ONE], None)
    assert not builder.store


def test_base_requirements_and_arguments_reach_the_tag(workshop: Workshop, builder: FakeBuilder) -> None:
    other_base = Workshop(workshop.root, workshop.state, builder, "base:2", lambda _: "a==1\n", {}, Progress())
    other_lock = Workshop(workshop.root, workshop.state, builder, "base:1", lambda _: "a==2\n", {}, Progress())
    assert len({each.ref(ONE) for each in (workshop, other_base, other_lock)}) == 3
    assert other_lock.ref(TWO) == workshop.ref(TWO), "an image without packages does not depend on the lock file"


def test_an_old_image_that_is_in_use_does_not_fail_a_run_that_is_done(
    builder: FakeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(ref: str) -> None:
        raise ClusterError(f"{ref} is in use")

    builder.store = {"one:1"}
    monkeypatch.setattr(builder, "remove", refuse)
    said = StringIO()
    forget_replaced(builder, {"one": "one:1"}, {"one": "one:2"}, Progress(said))
    assert said.getvalue() == "  the old image one:1 stays: one:1 is in use\n"


def test_archives_of_a_killed_run_are_deleted_and_records_are_not(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    record_refs(state, {"one": "one:1"})
    for name in ("one.tar", "holidays.tar"):
        (state.images / name).touch()
    remove_leftovers(state, [ONE, TWO])
    assert {path.name for path in state.images.iterdir()} == {"refs.json", "holidays.tar"}


def test_only_images_that_were_replaced_are_forgotten(builder: FakeBuilder) -> None:
    builder.store = {"one:1", "one:2", "two:1", "three:1"}
    before = {"one": "one:1", "two": "two:1", "three": "three:1", "gone": "gone:1"}
    forget_replaced(builder, before, {"one": "one:2", "two": "two:1", "gone": "gone:2"}, Progress())
    assert builder.store == {"one:2", "two:1", "three:1"}


def test_records_of_other_images_stay(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    assert read_refs(state) == {}
    record_refs(state, {"one": "one:1", "two": "two:1"})
    record_refs(state, {"two": "two:2"})
    assert recorded(state, "one") == "one:1"
    assert recorded(state, "two") == "two:2"
    with pytest.raises(ClusterError, match="make images"):
        recorded(state, "three")
