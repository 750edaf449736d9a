"""Frame of the cluster suites that run on fake engines: the cluster, the images, namespaces that are left clean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from sunfleet_cluster.images.records import recorded
from sunfleet_cluster.state import StateFolder
from support.fakes import ApiProxy, api_proxy, hub
from support.kubectl import Kubectl


@pytest.fixture(scope="session")
def kubectl() -> Kubectl:
    """kubectl for the cluster of this machine."""
    return Kubectl.for_this_machine()


@pytest.fixture(scope="session")
def fake_image() -> str:
    """The fake engine's image, which `make images` has loaded."""
    return recorded(StateFolder.from_env(), "fake-engine")


@pytest.fixture(scope="session")
def proxy(kubectl: Kubectl) -> Iterator[ApiProxy]:
    """A way to every pod."""
    with api_proxy(kubectl) as running:
        yield running


@pytest.fixture(scope="module")
def make_namespace(kubectl: Kubectl, fake_image: str) -> Iterator[Callable[[str], str]]:
    """Makes a namespace with restricted Pod Security and a model hub; all are deleted after the module."""
    made: list[str] = []

    def make(prefix: str) -> str:
        name = f"e2e-{prefix}-{uuid4().hex[:6]}"
        labels = {"pod-security.kubernetes.io/enforce": "restricted", "sunfleet-e2e": "true"}
        kubectl.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}])
        made.append(name)
        kubectl.apply(hub(fake_image), name)
        return name

    yield make
    for name in made:
        kubectl.run("delete", "namespace", name, "--wait=false", "--ignore-not-found")
