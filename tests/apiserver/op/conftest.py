"""One operator process for all tests of this folder, with the rights of its manifests and nothing more."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sunfleet_apitest.client import Api
from sunfleet_cluster.controlplane import RunningControlPlane
from sunfleet_optest.live import ROOT, Fleet, Process

LEASE_SECONDS = 10  # less, and a busy test machine loses it
SYSTEM = "sunfleet-system"
MANIFESTS = ROOT / "manifests" / "base" / "operator"
_PLURALS = {"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings",
            "Role": "roles", "RoleBinding": "rolebindings"}  # fmt: skip


@pytest.fixture(scope="package")
def identity(plane: RunningControlPlane, api: Api, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kubeconfig of the operator's own service account."""
    api.create("/api/v1/namespaces", {"metadata": {"name": SYSTEM}})
    accounts = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts"
    account = yaml.safe_load((MANIFESTS / "service-account.yaml").read_text())
    api.create(accounts, account)
    for document in yaml.safe_load_all((MANIFESTS / "rbac.yaml").read_text()):
        space = document["metadata"].get("namespace")
        scope = f"/namespaces/{space}" if space else ""
        api.create(f"/apis/rbac.authorization.k8s.io/v1{scope}/{_PLURALS[document['kind']]}", document)
    token = api.create(f"{accounts}/{account['metadata']['name']}/token", {"spec": {}})["status"]["token"]
    config = yaml.safe_load(plane.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    path = tmp_path_factory.mktemp("operator") / "operator.kubeconfig"
    path.write_text(json.dumps(config))
    return path


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def make_process(identity: Path, name: str) -> Process:
    env = {
        "KUBECONFIG": str(identity),
        "SUNFLEET_OPERATOR_LEADER_ELECTION_NAMESPACE": SYSTEM,
        "SUNFLEET_OPERATOR_IDENTITY": name,
        "SUNFLEET_OPERATOR_LEASE_DURATION_SECONDS": str(LEASE_SECONDS),
        "SUNFLEET_OPERATOR_LEASE_RENEW_DEADLINE_SECONDS": str(LEASE_SECONDS - 2),
        "SUNFLEET_OPERATOR_LEASE_RETRY_SECONDS": "0.5",
        "SUNFLEET_OPERATOR_BACKOFF_MAX_SECONDS": "2",
        "SUNFLEET_OPERATOR_ENGINE_IMAGE": "sunfleet/worker:1",
        "SUNFLEET_OPERATOR_WEIGHTS_IMAGE": "sunfleet/weights:1",
    }
    return Process(env, identity.parent / f"{name}.log", _free_port(), _free_port())


def wait_leading(process: Process, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not (process.healthy() or {}).get("leading"):
        assert time.monotonic() < deadline, process.log.read_text()[-3000:]
        time.sleep(0.1)


@pytest.fixture(scope="package")
def operator(identity: Path) -> Iterator[Process]:
    """The running operator; a test that kills it starts it again."""
    process = make_process(identity, "first")
    process.start()
    wait_leading(process)
    yield process
    assert process.stop() == 0
    log = process.log.read_text()
    assert "Traceback" not in log, log[-3000:]
    assert "forbidden" not in log, log[-3000:]


@pytest.fixture
def fleet(operator: Process, api: Api, namespace: str) -> Iterator[Fleet]:
    """A namespace in which this test plays controllers and kubelet."""
    made = Fleet(api, namespace)
    yield made
    made.clear()
