"""A bare control plane for tests: etcd and an API server on free loopback ports, nothing else, ready in seconds.

It needs no root and leaves nothing behind: the processes end with the `with` block, and with the process that
started them if that is killed.

    with control_plane(tmp_path) as plane:
        plane.api.get("/api/v1/namespaces/default")
"""

import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sunfleet_cluster import health, kubeconfig, pki, processes
from sunfleet_cluster.api import ApiClient
from sunfleet_cluster.components import ControlPlane
from sunfleet_cluster.errors import ClusterError
from sunfleet_cluster.processes import Component
from sunfleet_cluster.state import StateFolder, write_atomic

_READY_TIMEOUT = 90.0  # seconds; 5 on an idle machine
_STOP_TIMEOUT = 2.0  # seconds; nothing of this control plane is worth waiting for
_LOOPBACK = "127.0.0.1"
# Ends a program when the one that started it ends, however that ends.
_TIED = ("setpriv", "--pdeathsig", "KILL", "--")
# Where nobody makes service accounts, pods would be refused for want of one.
_WITHOUT_CONTROLLERS = "--disable-admission-plugins=ServiceAccount"


@dataclass(frozen=True)
class RunningControlPlane:
    """An API server that answers. `kubeconfig`: its administrator's; `kubectl`: the program; `logs`: folder of the
    components' logs; `pids`: of the components, by name.
    """

    url: str
    kubeconfig: Path
    kubectl: Path
    logs: Path
    api: ApiClient
    pids: Mapping[str, int]


@contextmanager
def control_plane(
    folder: Path, bin_folder: Path | None = None, *, controllers: bool = False, api_flags: Sequence[str] = ()
) -> Iterator[RunningControlPlane]:
    """Run a control plane with its files in `folder` during the block; StartError with the end of a log when it does
    not start.

    `bin_folder`: where kube-apiserver lies (default: the state folder's). `controllers`: run kube-controller-manager
    too, for tests of garbage collection, Deployments, service accounts and namespace deletion. `api_flags`: more flags
    for kube-apiserver.
    """
    folder = folder.resolve()
    plane = _describe(folder, bin_folder or StateFolder.from_env().bin)
    _write_identities(plane, folder)
    logs = folder / "logs"
    started = dict[str, subprocess.Popen[bytes]]()
    with ExitStack() as running:

        def bring(*components: Component) -> None:
            for component in components:
                child = processes.start(component, folder, logs, _TIED)
                running.callback(_end, child)
                started[component.name] = child
            health.wait_healthy(components, logs, _READY_TIMEOUT, lambda each: started[each.name].poll() is None)

        # fsync is for data that must outlive a power cut.
        extra = () if controllers else (_WITHOUT_CONTROLLERS,)
        bring(plane.etcd("--unsafe-no-fsync"), plane.api_server("--endpoint-reconciler-type=none", *extra, *api_flags))
        if controllers:
            bring(plane.controller_manager())
        api = ApiClient(plane.api_url, plane.pki)
        pids = {name: child.pid for name, child in started.items()}
        yield RunningControlPlane(plane.api_url, folder / "admin.kubeconfig", plane.bin / "kubectl", logs, api, pids)


def _describe(folder: Path, bin_folder: Path) -> ControlPlane:
    for program in ("etcd", "kube-apiserver"):
        if not (bin_folder / program).is_file():
            raise ClusterError(f"{bin_folder / program} is missing: `make programs` builds it")
    api, etcd, peer, metrics, controllers = _free_ports(5)
    return ControlPlane(
        bin=bin_folder,
        pki=folder / "pki",
        config=folder,
        etcd_data=folder / "etcd",
        host=_LOOPBACK,
        services="10.203.128.0/24",
        api_port=api,
        etcd_port=etcd,
        etcd_peer_port=peer,
        etcd_metrics_port=metrics,
        controller_port=controllers,
    )


def _write_identities(plane: ControlPlane, folder: Path) -> None:
    pki.ensure(plane.pki, pki.control_plane_identities((), "none", ()))
    for identity in ("admin", "controller-manager"):
        text = kubeconfig.render(plane.api_url, plane.pki, identity)
        write_atomic(folder / f"{identity}.kubeconfig", text, 0o600)


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, all different: each is held until all are chosen."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((_LOOPBACK, 0))
        return [each.getsockname()[1] for each in sockets]


def _end(child: "subprocess.Popen[bytes]") -> None:
    child.terminate()
    try:
        child.wait(_STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
