"""A real router and the operator, each with its own view of one API server, agree about what is served."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from sunfleet_api import names
from sunfleet_api.routes import PATH
from sunfleet_apitest.client import Api, RefusedError
from sunfleet_apitest.identity import SYSTEM
from sunfleet_cluster.controlplane import RunningControlPlane
from sunfleet_optest.live import ROOT, Fleet, Process
from sunfleet_optest.objects import decoder, model

from .conftest import _free_port, in_place_of, make_process

pytestmark = pytest.mark.timeout(300)
_PODS = f"/api/v1/namespaces/{SYSTEM}/pods"
_LABELS = {names.LABEL_COMPONENT: "router", names.LABEL_PART_OF: "sunfleet"}


@pytest.fixture
def asking(operator: Process, identity: Path) -> Iterator[Process]:
    """The operator, which asks routers, in place of the one that does not."""
    process = make_process(identity, "asking")
    process.env = {**process.env, "SUNFLEET_OPERATOR_ROUTERS__ASKED": "true"}
    with in_place_of(operator, process):
        yield process


@contextmanager
def router(api: Api, plane: RunningControlPlane, name: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A router process that answers, and the pod that says where it is."""
    admin = _free_port()
    settings = {
        "KUBECONFIG": str(plane.kubeconfig), "HOST": "127.0.0.1", "PORT": "0", "METRICS_PORT": "0",
        "ADMIN_PORT": str(admin), "AUTHENTICATION": "disabled", "SOCKETS": "asyncio", "DRAIN_TIMEOUT": "0",
    }  # fmt: skip
    path = os.pathsep.join(str(ROOT / room) for room in ("crds", "router"))
    env = {**os.environ, "PYTHONPATH": path, **{f"SUNFLEET_ROUTER_{key}": value for key, value in settings.items()}}
    with (folder / f"{name}.log").open("wb") as log:
        child = subprocess.Popen([sys.executable, "-m", "sunfleet_router"], env=env, stderr=log, stdout=log)
    try:
        _wait_for_answers(child, admin, folder / f"{name}.log")
        _pod(api, name, admin)
        yield child
    finally:
        child.kill()
        child.wait()
        with suppress(RefusedError):
            api.delete(f"{_PODS}/{name}")


def _wait_for_answers(child: subprocess.Popen[bytes], admin: int, log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{admin}{PATH}", timeout=5):
            return
        assert child.poll() is None, log.read_text()[-2000:]
        assert time.monotonic() < deadline, log.read_text()[-2000:]
        time.sleep(0.2)


def _pod(api: Api, name: str, admin: int) -> None:
    """Ready from the start, and also when the process has ended."""
    container: dict[str, Any] = {
        "name": "router", "image": "router", "ports": [{"name": "admin", "containerPort": admin}],
    }  # fmt: skip
    api.create(_PODS, {"metadata": {"name": name, "labels": _LABELS}, "spec": {"containers": [container]}})
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    address = {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
    api.merge(f"{_PODS}/{name}/status", {"status": {"conditions": [ready], "phase": "Running", **address}})


def test_ready_means_that_the_routers_act_on_it(
    asking: Process, api: Api, plane: RunningControlPlane, namespace: str, tmp_path: Path
) -> None:
    fleet = Fleet(api, namespace)
    fleet.apply(decoder())
    fleet.apply(model())
    unknown = ("Unknown", "Pending")
    for kind, name in (("SunModel", "maths"), ("SharedDecoder", "base")):
        fleet.until(
            lambda kind=kind, name=name: fleet.condition(kind, name, "RouterSynced")[:2] == unknown,  # type: ignore[misc]
            f"a router of {kind} {name} is waited for",
        )
    with router(api, plane, "router-a", tmp_path) as first:
        fleet.until_ready(("SharedDecoder", "base"), ("SunModel", "maths"))
        assert fleet.condition("SunModel", "maths", "RouterSynced")[:2] == ("True", "RoutesTaken")
        writes = asking.writes()
        with router(api, plane, "router-b", tmp_path):
            fleet.apply(model(uri="pvc://models/adapters/maths2"))
            wanted = fleet.get("SunModel", "maths")["metadata"]["generation"]
            fleet.until(
                lambda: (
                    fleet.get("SunModel", "maths")["status"]["observedGeneration"] == wanted
                    and fleet.ready("SunModel", "maths")
                ),
                "both have the new revision",
            )
            assert asking.writes() > writes
            first.kill()
            first.wait()
            fleet.apply(model(uri="pvc://models/adapters/maths3"))
            unreachable = ("False", "RouterUnreachable")
            fleet.until(
                lambda: fleet.condition("SunModel", "maths", "RouterSynced")[:2] == unreachable, "the dead one is told"
            )
            assert "router-a" in fleet.condition("SunModel", "maths")[2]
    fleet.clear()
