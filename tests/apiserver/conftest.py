"""A real etcd and API server for the whole session, with our CRDs installed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count

import pytest
import yaml

from sunfleet_api.crd import crd
from sunfleet_api.generate import to_yaml
from sunfleet_api.kinds import KINDS
from sunfleet_apitest.client import Api, RefusedError
from sunfleet_apitest.paths import collection
from sunfleet_cluster.controlplane import RunningControlPlane, control_plane

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_SERVED_WITHIN = 20.0  # seconds
_NUMBERS = count(1)


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningControlPlane]:
    """The bare control plane: no controllers, no node."""
    with control_plane(tmp_path_factory.mktemp("plane")) as running:
        yield running


@pytest.fixture(scope="session")
def api(plane: RunningControlPlane) -> Api:
    """A client of the API server that knows our kinds."""
    client = Api(plane.kubeconfig)
    for kind in KINDS:
        client.create(_CRDS, yaml.safe_load(to_yaml(crd(kind))))
    for kind in KINDS:
        _wait_served(client, kind)
    return client


@pytest.fixture
def namespace(api: Api) -> Iterator[str]:
    """A namespace of the test's own. Its objects of our kinds go with the test: a model name is unique in the whole
    cluster, and the next test's operator would find it taken.
    """
    name = f"test-{next(_NUMBERS)}"
    api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    for kind in KINDS:
        api.delete(collection(kind, name))


def _wait_served(client: Api, kind: str) -> None:
    """A CRD that was accepted takes a moment until its objects can be asked for."""
    deadline = time.monotonic() + _SERVED_WITHIN
    while True:
        try:
            client.get(collection(kind, "default"))
        except RefusedError as refusal:
            if time.monotonic() > deadline:
                pytest.fail(f"{kind} is not served after {_SERVED_WITHIN:.0f} s: {refusal}")
            time.sleep(0.05)
        else:
            return
