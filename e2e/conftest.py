"""Frame of the cluster suites that run on fake engines: the cluster, the images, namespaces that are left clean."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from sunfleet_cluster.images.records import recorded
from sunfleet_cluster.state import StateFolder
from support.fakes import ApiProxy, api_proxy, create_namespace, hub, secret
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


@pytest.fixture(scope="session")
def hub_namespace(kubectl: Kubectl, fake_image: str) -> Iterator[str]:
    """The namespace of a model hub that is ready; one for all suites."""
    name = create_namespace(kubectl, "hub")
    kubectl.apply(hub(fake_image), name)
    kubectl.run("wait", "pod/hub", "--namespace", name, "--for=condition=Ready", "--timeout=90s")
    yield name
    kubectl.run("delete", "namespace", name, "--wait=false", "--ignore-not-found")


@pytest.fixture(scope="module")
def make_namespace(kubectl: Kubectl, hub_namespace: str) -> Iterator[Callable[[str], str]]:
    """Makes a namespace with a Secret ``hub`` that opens the hub; all are deleted after the module."""
    made: list[str] = []

    def make(prefix: str) -> str:
        made.append(create_namespace(kubectl, prefix))
        kubectl.apply([secret("hub", hub_namespace)], made[-1])
        return made[-1]

    yield make
    for name in made:
        kubectl.run("delete", "namespace", name, "--wait=false", "--ignore-not-found")
