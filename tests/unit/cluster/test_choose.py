"""Which kind of cluster a machine gets."""

from pathlib import Path

import pytest

from sunfleet_cluster import kind
from sunfleet_cluster.choose import open_cluster
from sunfleet_cluster.errors import ClusterError
from sunfleet_cluster.progress import Progress
from sunfleet_cluster.settings import ClusterSettings, Flavour
from sunfleet_cluster.state import StateFolder


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SUNFLEET_STATE", str(tmp_path))
    for name in ("KUBECONFIG", "SUNFLEET_CLUSTER", "SUNFLEET_USE_KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)


def docker(monkeypatch: pytest.MonkeyPatch, *, answers: bool) -> None:
    monkeypatch.setattr(kind, "docker_answers", lambda: answers)


def test_kind_where_docker_answers_and_embedded_where_not(monkeypatch: pytest.MonkeyPatch) -> None:
    docker(monkeypatch, answers=True)
    assert open_cluster().flavour == "kind"
    docker(monkeypatch, answers=False)
    assert open_cluster().flavour == "embedded"


def test_an_embedded_cluster_stays_one_after_docker_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cluster" / "pki").mkdir(parents=True)
    docker(monkeypatch, answers=True)
    assert open_cluster().flavour == "embedded"


def test_a_kind_cluster_stays_one_while_docker_is_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kind.made(StateFolder(tmp_path)).parent.mkdir()
    kind.made(StateFolder(tmp_path)).touch()
    docker(monkeypatch, answers=False)
    assert open_cluster().flavour == "kind"


def test_a_kubeconfig_in_the_environment_is_ignored_until_we_are_told_to_use_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    docker(monkeypatch, answers=False)
    monkeypatch.setenv("KUBECONFIG", "/somebody/elses")
    assert open_cluster().kubeconfig == tmp_path / "cluster" / "admin.kubeconfig"
    monkeypatch.setenv("SUNFLEET_USE_KUBECONFIG", "1")
    assert open_cluster().kubeconfig == Path("/somebody/elses")


def test_a_cluster_that_is_not_ours_is_neither_stopped_nor_given_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/somebody/elses")
    monkeypatch.setenv("SUNFLEET_USE_KUBECONFIG", "1")
    cluster = open_cluster()
    with pytest.raises(ClusterError, match="did not make"):
        cluster.down(Progress())
    with pytest.raises(ClusterError, match="registry"):
        cluster.load_image(Path("image.tar"))


def test_the_flavour_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    docker(monkeypatch, answers=False)
    assert open_cluster(ClusterSettings(cluster=Flavour.KIND)).flavour == "kind"


def test_kinds_node_sees_the_state_folder_at_the_same_path_read_only(tmp_path: Path) -> None:
    text = kind.configuration(tmp_path)
    assert text.count(str(tmp_path)) == 2
    assert "readOnly: true" in text
