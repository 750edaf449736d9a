"""One operator process for all tests of this folder, with the rights of its manifests and nothing more."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sunfleet_apitest.client import Api
from sunfleet_apitest.identity import SYSTEM, service_account_kubeconfig
from sunfleet_cluster.controlplane import RunningControlPlane
from sunfleet_optest.live import ROOT, Fleet, Process

LEASE_SECONDS = 10  # less, and a busy test machine loses it
MANIFESTS = ROOT / "manifests" / "base" / "operator"


@pytest.fixture(scope="package")
def identity(plane: RunningControlPlane, api: Api, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kubeconfig of the operator's own service account."""
    target = tmp_path_factory.mktemp("operator") / "operator.kubeconfig"
    return service_account_kubeconfig(api, plane.kubeconfig, MANIFESTS, target)


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
        "SUNFLEET_OPERATOR_TUNER_IMAGE": "sunfleet/tuner:1",
        "SUNFLEET_OPERATOR_ROUTERS__ASKED": "false",  # there are none but where a test starts one
    }
    return Process(env, identity.parent / f"{name}.log", _free_port(), _free_port())


def wait_leading(process: Process, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not (process.healthy() or {}).get("leading"):
        assert time.monotonic() < deadline, process.log.read_text()[-3000:]
        time.sleep(0.1)


def end_in_order(process: Process) -> None:
    """It leaves with 0, met no fault and asked for nothing that it may not do."""
    assert process.stop() == 0
    log = process.log.read_text()
    assert "Traceback" not in log, log[-3000:]
    assert "forbidden" not in log, log[-3000:]


@contextmanager
def in_place_of(operator: Process, process: Process) -> Iterator[Process]:
    """``process`` leads, and leaves in order at the end; then ``operator`` leads again, whatever came of it."""
    assert operator.stop() == 0
    process.start()
    try:
        wait_leading(process)
        yield process
        end_in_order(process)
    finally:
        if process.child is not None and process.child.poll() is None:
            process.kill()
        operator.start()
        wait_leading(operator)


@pytest.fixture(scope="package")
def operator(identity: Path) -> Iterator[Process]:
    """The running operator; a test that kills it starts it again."""
    process = make_process(identity, "first")
    process.start()
    wait_leading(process)
    yield process
    end_in_order(process)


@pytest.fixture
def fleet(operator: Process, api: Api, namespace: str) -> Iterator[Fleet]:
    """A namespace in which this test plays controllers and kubelet."""
    made = Fleet(api, namespace)
    yield made
    made.clear()
