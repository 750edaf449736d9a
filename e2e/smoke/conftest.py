"""Frame of the smoke tests: the running cluster, a namespace, and an image of one small program of our own."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from sunfleet_cluster.choose import open_cluster
from sunfleet_cluster.cluster import Cluster
from sunfleet_cluster.programs import PROBE
from support import programs
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
def image(cluster: Cluster) -> str:
    """An image with nothing but /probe (`e2e/cluster/go/probe`), loaded into the cluster."""
    return programs.image(cluster, PROBE)


@pytest.fixture
def namespace(kubectl: Kubectl) -> Iterator[str]:
    """A fresh namespace with restricted Pod Security, deleted afterwards."""
    name = f"smoke-{uuid4().hex[:8]}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    kubectl.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}])
    yield name
    # Not waited for: the next test has a namespace of its own.
    kubectl.run("delete", "namespace", name, "--wait=false")
