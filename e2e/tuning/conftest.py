"""A namespace of its own with the sample weights, the engine, and a claim that pods may write to."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from sunfleet_cluster.state import StateFolder
from sunfleet_cluster.volumes import local_claim
from support.client import RouterClient
from support.fleet import ROUTER_NAMESPACE, ROUTER_SERVICE, ROUTER_SERVICE_PORT
from support.kubectl import Kubectl
from support.reference import Reference
from support.samples import delete_namespace, make_namespace
from support.workshop import CLAIM, NAMESPACE, Workshop


@pytest.fixture(scope="session")
def workshop(kubectl: Kubectl) -> Iterator[Workshop]:
    state = StateFolder.from_env()
    folder = state.root / "workshop"
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
    folder.mkdir(parents=True)
    make_namespace(kubectl, NAMESPACE, state)
    (node,) = kubectl.items("nodes")
    hostname = node["metadata"]["labels"]["kubernetes.io/hostname"]
    volume = f"{CLAIM}-{NAMESPACE}"
    kubectl.delete("persistentvolume", volume)  # of an earlier namespace: it never binds to a second claim
    kubectl.apply(local_claim(CLAIM, NAMESPACE, folder, hostname, "ReadWriteMany"))
    bound = "--for=jsonpath={.status.phase}=Bound"  # a pod that comes before waits for the scheduler's next round
    kubectl.run("wait", f"persistentvolumeclaim/{CLAIM}", "--namespace", NAMESPACE, bound, "--timeout=60s")
    yield Workshop(kubectl, folder)
    delete_namespace(kubectl, NAMESPACE)
    kubectl.delete("persistentvolume", volume)
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def client(kubectl: Kubectl) -> Iterator[RouterClient]:
    with kubectl.port_forward(ROUTER_NAMESPACE, ROUTER_SERVICE, ROUTER_SERVICE_PORT) as url:
        client = RouterClient(url)
        yield client
        client.close()


@pytest.fixture(scope="session")
def reference() -> Iterator[Reference]:
    with Reference(StateFolder.from_env()) as running:
        yield running
