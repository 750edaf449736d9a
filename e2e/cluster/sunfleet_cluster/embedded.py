"""The embedded cluster: a real one-node Kubernetes on this machine, without Docker."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from ipaddress import IPv4Network
from pathlib import Path

from sunfleet_cluster import (
    addons,
    components,
    configs,
    health,
    kubeconfig,
    network,
    oci,
    packages,
    pki,
    preflight,
    processes,
    programs,
    runtime,
)
from sunfleet_cluster.api import ApiClient
from sunfleet_cluster.cluster import Status
from sunfleet_cluster.errors import ClusterError, StartError
from sunfleet_cluster.layout import CLUSTER_DOMAIN, NODE_NAME, Addresses, Layout
from sunfleet_cluster.lock import exclusive
from sunfleet_cluster.processes import Component
from sunfleet_cluster.progress import Progress
from sunfleet_cluster.report import examine
from sunfleet_cluster.settings import ClusterSettings
from sunfleet_cluster.state import StateFolder, discard, refuse_foreign, sweep, write_atomic

READY_TIMEOUT = 120.0  # seconds a component, the node or DNS gets to become ready on a busy two-core machine
YOUNG = 10.0  # seconds; with a kubelet younger than this,
DOUBT = 3.0  # for so many seconds the readiness of pods may be what an earlier kubelet said
STOP_GRACE = 5.0  # seconds; an API server with open watches would take a minute to go
POD_GRACE = 3.0  # seconds that pods get to end by themselves when the cluster goes down
_RESOLV_CONF = Path("/etc/resolv.conf")
_IDENTITIES = ("controller-manager", "scheduler", "kubelet", "proxy", "policy")


class EmbeddedCluster:
    """etcd, API server, controllers, kubelet and kube-proxy as processes of this machine in a network namespace of
    their own.
    """

    flavour = "embedded"

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self._state = StateFolder(settings.state)
        subnet = _recorded_subnet(self._state.cluster) or settings.subnet
        self.layout = Layout(self._state.cluster, self._state.bin, Addresses(subnet))

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of the administrator."""
        return self.layout.admin

    def up(self, progress: Progress) -> None:
        """Make the cluster, or start what is missing, dead or outdated of it."""
        preflight.require(preflight.embedded(self.layout, self._settings.state), progress)
        with self._lock(progress):
            self._check_folder()
            self._check_subnet()
            if self.layout.stopping.exists():
                with progress.step("ending what an interrupted `down` left running"):
                    self._stop()
                    self.layout.stopping.unlink()
            packages.ensure(progress)
            programs.build(programs.EMBEDDED, self.layout.bin, progress)
            with progress.step("certificates, configuration, network"):
                self._tidy()
                write_changed(self.layout.subnet_file, str(self.layout.addresses.subnet))
                self._write_files()
                network.ensure(self.layout)
                runtime.ensure_cgroup(self.layout)
            self._start(progress)
            self._complete(progress)

    def down(self, progress: Progress, *, purge: bool = False, keep_objects: bool = False) -> None:
        """Stop the cluster and forget its objects; images, certificates and programs stay unless `purge`."""
        preflight.require([preflight.root_user()], progress)
        with self._lock(progress):
            self._check_folder()
            if self.layout.root.exists():
                write_atomic(self.layout.stopping, "")
            with progress.step("stopping pods and components"):
                self._stop()
            with progress.step("removing mounts, network and files"):
                runtime.unmount_below(self.layout.root)
                network.remove(self.layout)
                runtime.remove_cgroups(self.layout)
                self._forget(purge=purge, keep_objects=keep_objects)
                self.layout.stopping.unlink(missing_ok=True)

    def status(self) -> Status:
        """Look at the cluster, changing nothing; ClusterError for a user who could not see it."""
        if problem := preflight.root_user().problem:
            raise ClusterError(f"nobody but root sees the cluster's processes: {problem}")
        return Status(self.flavour, self.kubeconfig, examine(self.layout))

    def has_image(self, ref: str) -> bool:
        """Whether containerd holds `ref`."""
        return runtime.has_image(self.layout, ref)

    def load_image(self, archive: Path) -> None:
        """Load an OCI or Docker archive into containerd."""
        runtime.load_archive(self.layout, archive)

    def _lock(self, progress: Progress) -> AbstractContextManager[None]:
        return exclusive(self._state.root / "cluster.lock", progress)

    def _check_folder(self) -> None:
        ours = (self.layout.subnet_file, self.layout.pki, self.layout.containerd_root.parent, self.layout.stopping)
        refuse_foreign(self.layout.root, {path.name for path in ours})

    def _check_subnet(self) -> None:
        """ClusterError when the cluster has other addresses than it should: its objects and certificates hold them."""
        here = _recorded_subnet(self._state.cluster) or self.layout.addresses.subnet
        asked = self._settings.subnet if "subnet" in self._settings.model_fields_set else here
        if wrong := {asked, self.layout.addresses.subnet} - {here}:
            raise ClusterError(
                f"the cluster in {self.layout.root} has the range {here} and cannot change to {wrong.pop()}: unset "
                "SUNFLEET_SUBNET, or forget its objects with `make cluster-down` first"
            )

    def _tidy(self) -> None:
        """Finish what a killed `down` or a reboot left."""
        for folder in (*self._objects(), self.layout.root, self.layout.containerd_state):
            sweep(folder)
        if "containerd" not in processes.find(self.layout.root):
            runtime.forget_dead_containers(self.layout)

    def _write_files(self) -> None:
        layout, addresses = self.layout, self.layout.addresses
        api_hosts = (
            f"IP:{addresses.node}",
            f"IP:{addresses.api_service}",
            "DNS:kubernetes",
            "DNS:kubernetes.default",
            "DNS:kubernetes.default.svc",
            f"DNS:kubernetes.default.svc.{CLUSTER_DOMAIN}",
        )
        pki.ensure(
            layout.pki, pki.control_plane_identities(api_hosts, NODE_NAME, (f"DNS:{NODE_NAME}", f"IP:{addresses.node}"))
        )
        write_changed(layout.admin, kubeconfig.render(layout.api_url, layout.pki, "admin"), 0o600)
        for identity in _IDENTITIES:
            write_changed(layout.kubeconfig(identity), kubeconfig.render(layout.api_url, layout.pki, identity), 0o600)
        pause = oci.reference("pause", layout.bin / "pause")
        write_changed(layout.config / "containerd.toml", configs.containerd(layout, pause))
        write_changed(layout.config / "kubelet.yaml", configs.kubelet(layout))
        write_changed(layout.cni / "10-pods.conflist", configs.cni(layout))
        write_changed(layout.config / "resolv.conf", configs.resolv_conf(_RESOLV_CONF.read_text()))

    def _start(self, progress: Progress) -> None:
        layout = self.layout
        self._stop_outdated(components.all_components(layout))
        runtime_component = components.containerd(layout)
        plane = components.control_plane_components(layout)
        with progress.step("etcd, API server, containerd") as step:
            step.outcome = self._bring(*plane, runtime_component)
        with progress.step("images of pause and CoreDNS"):
            for name in ("pause", "coredns"):
                runtime.load_program(layout, name, layout.bin / name)
        with progress.step("controllers, kubelet, kube-proxy") as step:
            step.outcome = self._bring(*components.node_components(layout))

    def _complete(self, progress: Progress) -> None:
        layout = self.layout
        api = ApiClient(layout.api_url, layout.pki)
        with progress.step("add-ons"):
            manifests = addons.render(
                layout, oci.reference("coredns", layout.bin / "coredns"), _RESOLV_CONF.read_text()
            )
            addons.apply(layout, manifests)
        with progress.step("network policy"):
            wait_for("the node", lambda: None if addons.node_exists(api) else "not registered", layout.logs, "kubelet")
            self._bring(components.policy(layout))
        with progress.step("node and DNS ready"):
            since = self._started_at("kubelet")  # a kubelet that has just started says `not ready` first
            wait_for("the node", lambda: addons.node_problem(api, since), layout.logs, "kubelet")
            addons.pretend_gpus(api, self._settings.gpus)
            # A kubelet that has just started takes pods for not ready until it has probed them, but not at once.
            doubt = DOUBT if time.time() - since < YOUNG else 0.0
            wait_for("cluster DNS", lambda: addons.dns_problem(api), layout.logs, "kubelet", doubt)

    def _bring(self, *wanted: Component) -> str:
        """Start those of `wanted` that do not run and wait until all work; the names of those started."""
        alive = processes.find(self.layout.root)
        missing = [component for component in wanted if component.name not in alive]
        root, logs = self.layout.root, self.layout.logs
        for component in missing:
            direct = str(self.layout.addresses.subnet)
            processes.start_detached(component, root, logs, network.inside(self.layout), direct)
        health.wait_healthy(wanted, logs, READY_TIMEOUT, lambda component: component.name in processes.find(root))
        return f"started {', '.join(component.name for component in missing)}" if missing else "running already"

    def _started_at(self, component: str) -> float:
        """When the running process of `component` started (Unix time)."""
        process = processes.find(self.layout.root).get(component)
        return time.time() - process.age() if process else time.time()

    def _stop_outdated(self, wanted: Sequence[Component]) -> None:
        """Stop what runs with another command line, configuration or program than it should, and what runs twice."""
        first = processes.find(self.layout.root)
        keys = {component.name: component.key() for component in wanted}
        outdated = [
            process
            for process in processes.every(self.layout.root)
            if keys.get(process.mark.component) != process.mark.key or process != first.get(process.mark.component)
        ]
        processes.stop(outdated, STOP_GRACE)

    def _stop(self) -> None:
        alive = list(processes.every(self.layout.root))
        # kubelet first, or it would start again what is ended; etcd last, or the API server would wait for it.
        first = [process for process in alive if process.mark.component == "kubelet"]
        last = [process for process in alive if process.mark.component == "etcd"]
        processes.stop(first, STOP_GRACE)
        runtime.end_pods(self.layout, POD_GRACE)
        processes.stop([process for process in alive if process not in (*first, *last)], STOP_GRACE)
        processes.stop(last, STOP_GRACE)
        runtime.end_pods(self.layout, 0.0)  # what containerd started in its last moments

    def _objects(self) -> tuple[Path, ...]:
        """Folders that hold the cluster's objects and what was made for them."""
        return self.layout.etcd, self.layout.kubelet, self.layout.leases, self.layout.pod_logs

    def _forget(self, *, purge: bool, keep_objects: bool) -> None:
        layout = self.layout
        discard(layout.containerd_state)
        if not keep_objects:
            for folder in self._objects():
                discard(folder)
            layout.subnet_file.unlink(missing_ok=True)
        if purge:
            discard(layout.root)
        remove_log_links(layout.pod_logs)


def _recorded_subnet(cluster: Path) -> IPv4Network | None:
    """The range of the cluster in the folder `cluster`; None where there is none."""
    try:
        return IPv4Network((cluster / "subnet").read_text())
    except (FileNotFoundError, ValueError):
        return None


def write_changed(file: Path, content: str, mode: int = 0o644) -> None:
    """Write `content` unless `file` holds it already."""
    if not file.exists() or file.read_text() != content:
        write_atomic(file, content, mode)


def wait_for(what: str, problem: Callable[[], str | None], logs: Path, component: str, doubt: float = 0.0) -> None:
    """Wait until `problem` finds none; StartError with the end of `component`'s log after READY_TIMEOUT.

    `doubt`: seconds in which finding none is believed only after a problem was seen.
    """
    started, seen = time.monotonic(), False
    while (found := _ask(problem)) is not None or not (seen or time.monotonic() - started >= doubt):
        seen = seen or found is not None
        if time.monotonic() - started > READY_TIMEOUT:
            raise StartError(
                f"{what} is not ready after {READY_TIMEOUT:.0f} s: {found}; {processes.log_end(logs, component)}"
            )
        time.sleep(0.2)


def _ask(problem: Callable[[], str | None]) -> str | None:
    try:
        return problem()
    except ClusterError as error:  # the API server may be restarting; the deadline decides
        return str(error)


def remove_log_links(pod_logs: Path) -> None:
    """Remove the links that kubelet leaves in /var/log/containers to logs below `pod_logs`."""
    links = Path("/var/log/containers")
    for link in links.glob("*.log") if links.is_dir() else ():
        if link.is_symlink() and link.readlink().is_relative_to(pod_logs):
            link.unlink(missing_ok=True)
