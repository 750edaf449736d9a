"""kind clusters, with kind and Docker played by a fake: no engine is where these tests run."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from sunfleet_cluster import kind, preflight, programs
from sunfleet_cluster import kubectl as kubectl_room
from sunfleet_cluster.errors import ClusterError
from sunfleet_cluster.kind import KindCluster
from sunfleet_cluster.progress import Progress
from sunfleet_cluster.settings import ClusterSettings


class FakeKind:
    """Stands for kind, docker and kubectl; `dies` ends a creation half way."""

    def __init__(self) -> None:
        self.clusters: list[str] = []
        self.said: list[str] = []
        self.dies = False

    def run(self, *command: str, stdin: str | None = None, timeout: float | None = 120.0) -> str:
        del stdin, timeout
        words = [word.rpartition("/")[2] if index == 0 else word for index, word in enumerate(command)]
        self.said.append(" ".join(words))
        match words:
            case ["kind", "get", "clusters"]:
                return "\n".join(self.clusters)
            case ["kind", "create", "cluster", name, *_]:
                self.clusters.append(name.removeprefix("--name="))
                if self.dies:
                    raise ClusterError("killed")
            case ["kind", "delete", "cluster", name, *_]:
                self.clusters.remove(name.removeprefix("--name="))
        return ""

    def did(self, start: str) -> int:
        return sum(line.startswith(start) for line in self.said)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeKind:
    found = FakeKind()
    monkeypatch.setattr(kind, "run", found.run)
    monkeypatch.setattr(kubectl_room, "run", found.run)
    monkeypatch.setattr(preflight, "building", lambda *_: [])
    monkeypatch.setattr(programs, "build", lambda *_: None)
    return found


def cluster(state: Path) -> KindCluster:
    (state / "bin").mkdir(parents=True, exist_ok=True)
    (state / "bin" / "kind").touch()
    return KindCluster(ClusterSettings(state=state))


def quiet() -> Progress:
    return Progress(io.StringIO())


def test_two_state_folders_have_two_clusters_and_neither_stops_the_others(fake: FakeKind, tmp_path: Path) -> None:
    one, two = cluster(tmp_path / "one"), cluster(tmp_path / "two")
    fake.clusters = ["sunfleet", "kind"]  # somebody's
    one.up(quiet())
    two.up(quiet())
    one.down(quiet())
    assert fake.clusters == ["sunfleet", "kind", two.name]


def test_up_makes_it_once_and_starts_a_stopped_node(fake: FakeKind, tmp_path: Path) -> None:
    cluster(tmp_path).up(quiet())
    cluster(tmp_path).down(quiet(), keep_objects=True)
    cluster(tmp_path).up(quiet())
    assert fake.did("kind create") == 1
    assert fake.did(f"docker start {cluster(tmp_path).node}") == 1


def test_a_cluster_whose_making_was_killed_is_made_anew(fake: FakeKind, tmp_path: Path) -> None:
    fake.dies = True
    with pytest.raises(ClusterError, match="killed"):
        cluster(tmp_path).up(quiet())
    fake.dies = False
    cluster(tmp_path).up(quiet())
    assert (fake.did("kind delete"), fake.did("kind create")) == (1, 2)
    assert fake.clusters == [cluster(tmp_path).name]


def test_down_of_what_was_never_made_does_nothing(fake: FakeKind, tmp_path: Path) -> None:
    KindCluster(ClusterSettings(state=tmp_path)).down(quiet())
    cluster(tmp_path).down(quiet(), keep_objects=True)
    assert fake.did("kind delete") == fake.did("docker") == 0
