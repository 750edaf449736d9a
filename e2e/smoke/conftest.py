"""Frame of the smoke tests: the running cluster, a namespace, and an image of one small program of our own."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from sunfleet_cluster import oci, programs
from sunfleet_cluster.choose import open_cluster
from sunfleet_cluster.cluster import Cluster
from sunfleet_cluster.progress import Progress
from sunfleet_cluster.state import StateFolder
from support.kubectl import Kubectl


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The cluster of this state folder, which must be up."""
    found = open_cluster()
    if not found.status().healthy:
        pytest.fail(
            "the cluster is not healthy: run `make cluster-up`, and `make cluster-status` to see why", pytrace=False
        )
    return found


@pytest.fixture(scope="session")
def kubectl(cluster: Cluster) -> Kubectl:
    """kubectl for that cluster."""
    return Kubectl(Kubectl.for_this_machine().binary, cluster.kubeconfig)


@pytest.fixture(scope="session")
def image(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image with nothing but /probe (`e2e/cluster/go/probe`), loaded into the cluster."""
    folder = StateFolder.from_env().bin
    programs.build([programs.PROBE], folder, Progress())
    ref = oci.reference("probe", folder / "probe")
    if not cluster.has_image(ref):
        archive = tmp_path_factory.mktemp("probe") / "image.tar"
        oci.write_archive(archive, ref, folder / "probe")
        cluster.load_image(archive)
    return ref


@pytest.fixture
def namespace(kubectl: Kubectl) -> Iterator[str]:
    """A fresh namespace with restricted Pod Security, deleted afterwards."""
    name = f"smoke-{uuid4().hex[:8]}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    kubectl.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}])
    yield name
    # Not waited for: the next test has a namespace of its own.
    kubectl.run("delete", "namespace", name, "--wait=false")
