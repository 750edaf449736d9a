"""The control plane and the operator of one measurement."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from operator_scale import node
from operator_scale.api import Api
from operator_scale.audit import POLICY, AuditLog
from operator_scale.fleet import NAMESPACE
from operator_scale.router import router
from sunfleet_api.crd import crd
from sunfleet_api.kinds import KINDS
from sunfleet_apitest.client import Api as BlockingApi
from sunfleet_apitest.identity import SYSTEM, service_account_kubeconfig
from sunfleet_cluster.controlplane import RunningControlPlane, control_plane
from sunfleet_optest.live import ROOT, Process

_START_SECONDS = 60
_PREFIX = "SUNFLEET_OPERATOR_"
_RBAC = ROOT / "manifests/base/operator"


@dataclass
class World:
    """What is measured, and what it is measured with."""

    api: Api
    audit: AuditLog
    operator: Process
    kubeconfig: Path
    more: Mapping[str, str]  # settings of the operator
    plane: RunningControlPlane

    @property
    def pid(self) -> int:
        """Of the operator."""
        if self.operator.child is None:
            raise ProcessLookupError
        return self.operator.child.pid

    def reconciles(self) -> float:
        """How many the operator has done since it started."""
        found = re.findall(r"^sunfleet_operator_reconciles_total\{.*\} (\S+)$", self.operator.metrics(), re.MULTILINE)
        return sum(map(float, found))

    async def start_operator(self, resync_seconds: float) -> None:
        """In place of the one that runs, if any; returns when it holds the Lease."""
        if self.operator.child is not None:
            await asyncio.to_thread(self.operator.stop)
        more = {f"{_PREFIX}{name}": value for name, value in self.more.items()}
        self.operator.env = _settings(self.kubeconfig, resync_seconds) | more
        self.operator.start()
        deadline = time.monotonic() + _START_SECONDS
        while not (await asyncio.to_thread(self.operator.healthy) or {}).get("leading"):
            if time.monotonic() > deadline:
                raise TimeoutError(self.operator.log.read_text()[-2000:])
            await asyncio.sleep(0.1)


@asynccontextmanager
async def world(
    folder: Path, resync_seconds: float, *, module: str = "sunfleet_operator", more: Mapping[str, str] | None = None
) -> AsyncIterator[World]:
    """A fresh control plane with controllers, pods that are Ready at once, a router, and one operator with its own
    rights. ``module`` is what runs as the operator, ``more`` settings of it, without their prefix."""
    log = folder / "audit.log"
    flags = (f"--audit-policy-file={_policy(folder)}", f"--audit-log-path={log}")
    with control_plane(folder / "plane", controllers=True, api_flags=flags) as plane:
        kubeconfig = _prepare(plane, folder)
        async with Api.of(plane.kubeconfig) as api, router(api):
            nodes = asyncio.create_task(node.run(api))
            health, metrics = _free_ports()
            rooms = ("crds", "operator", "bench")
            operator = Process({}, folder / "operator.log", health, metrics, module=module, rooms=rooms)
            made = World(api, AuditLog(log), operator, kubeconfig, more or {}, plane)
            try:
                await made.start_operator(resync_seconds)
                yield made
            finally:
                if operator.child is not None:
                    operator.kill()
                nodes.cancel()
                await asyncio.gather(nodes, return_exceptions=True)


def _policy(folder: Path) -> Path:
    folder.mkdir(parents=True)
    policy = folder / "audit-policy.yaml"
    policy.write_text(POLICY)
    return policy


def _prepare(plane: RunningControlPlane, folder: Path) -> Path:
    """CRDs, the namespace, and a kubeconfig with the operator's own rights."""
    api = BlockingApi(plane.kubeconfig)
    for kind in KINDS:
        api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd(kind))
    for name in (NAMESPACE, SYSTEM):
        api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    return service_account_kubeconfig(api, plane.kubeconfig, _RBAC, folder / "operator.kubeconfig")


def _settings(kubeconfig: Path, resync_seconds: float) -> dict[str, str]:
    return {
        "KUBECONFIG": str(kubeconfig),
        f"{_PREFIX}LEADER_ELECTION_NAMESPACE": SYSTEM,
        f"{_PREFIX}LEASE_DURATION_SECONDS": "30",
        f"{_PREFIX}LEASE_RENEW_DEADLINE_SECONDS": "20",
        f"{_PREFIX}RESYNC_SECONDS": str(resync_seconds),
        f"{_PREFIX}ENGINE_IMAGE": "sunfleet/worker:1",
        f"{_PREFIX}WEIGHTS_IMAGE": "sunfleet/weights:1",
    }


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        for each in (first, second):
            each.bind(("127.0.0.1", 0))
        return int(first.getsockname()[1]), int(second.getsockname()[1])
