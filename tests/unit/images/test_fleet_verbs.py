"""What the verbs of the fleet decide before they begin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from sunfleet_cluster import fleet_verbs, runtime
from sunfleet_cluster.__main__ import main
from sunfleet_cluster.errors import ClusterError
from sunfleet_cluster.fleet_verbs import worker_engine
from sunfleet_cluster.images.builders import Buildah, Builder, Docker
from sunfleet_cluster.images.records import record_refs
from sunfleet_cluster.images.settings import Engine, ImageSettings
from sunfleet_cluster.install.overlay import NEEDED
from sunfleet_cluster.layout import Addresses, Layout
from sunfleet_cluster.progress import Progress
from sunfleet_cluster.state import StateFolder

REFS = {name: f"localhost/sunfleet/{name}:0123" for name in NEEDED}


@dataclass
class FakeCluster:
    flavour: str = "embedded"
    kubeconfig: Path = Path("/nowhere")
    held: frozenset[str] = frozenset()

    def has_image(self, ref: str) -> bool:
        return ref in self.held


@pytest.mark.parametrize(("flavour", "engine"), [("embedded", "mounted"), ("kind", "mounted"), ("external", "cpu")])
def test_pods_of_a_cluster_on_this_machine_mount_its_engine(flavour: str, engine: str) -> None:
    assert worker_engine(ImageSettings(), FakeCluster(flavour)) == engine  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("builder", "engine", "own"),
    [(Buildah(), Engine.CPU, True), (Docker(), Engine.CPU, False), (Docker(), Engine.MOUNTED, True)],
)
def test_a_mounted_engine_finds_its_interpreter_in_the_base_whatever_builds_it(
    builder: Builder, engine: Engine, own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_verbs, "ensure_base", lambda *_: "own")
    base = fleet_verbs._base(ImageSettings(), builder, engine, StateFolder(tmp_path), Progress(StringIO()))
    assert base == ("own" if own else "")


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeCluster], None]:
    monkeypatch.setenv("SUNFLEET_STATE", str(tmp_path))
    return lambda cluster: monkeypatch.setattr(fleet_verbs, "open_cluster", lambda: cluster)


@pytest.mark.parametrize("verb", ["install", "uninstall"])
def test_a_cluster_that_is_down_is_told_apart_from_what_it_lacks(
    verb: str, opened: Callable[[FakeCluster], None], capsys: pytest.CaptureFixture[str]
) -> None:
    opened(FakeCluster())
    assert main([verb]) == 1
    said = capsys.readouterr().err
    assert "the embedded cluster does not answer" in said
    assert "make cluster-up" in said


def test_an_image_is_not_asked_of_a_containerd_that_is_down(tmp_path: Path) -> None:
    layout = Layout(tmp_path, tmp_path / "bin", Addresses(IPv4Network("10.203.0.0/16")))
    with pytest.raises(ClusterError, match=r"containerd does not answer .*make cluster-up"):
        runtime.has_image(layout, "localhost/sunfleet/router:1")


def test_an_installation_without_its_images_says_which_and_how_to_get_them(
    opened: Callable[[FakeCluster], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A new cluster, after `make cluster-purge`: the records of the old one's images are still there."""
    monkeypatch.setattr(fleet_verbs, "_require_answer", lambda *_: None)
    record_refs(StateFolder(tmp_path), REFS)
    opened(FakeCluster(held=frozenset(REFS.values()) - {REFS["router"]}))
    assert main(["install"]) == 1
    said = capsys.readouterr().err
    assert f"the cluster lacks {REFS['router']}: run `make images`" in said
