"""A kind cluster, where a Docker engine answers. Built and unit-tested, but never tried on a real engine: see
docs/cluster.md.
"""

import json
import time
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from sunfleet_cluster import preflight, programs
from sunfleet_cluster.addons import GPU
from sunfleet_cluster.cluster import Part, Status
from sunfleet_cluster.commands import run, succeeds
from sunfleet_cluster.errors import ClusterError
from sunfleet_cluster.external import node_part
from sunfleet_cluster.kubectl import Kubectl
from sunfleet_cluster.layout import identity
from sunfleet_cluster.lock import exclusive
from sunfleet_cluster.progress import Progress
from sunfleet_cluster.settings import ClusterSettings
from sunfleet_cluster.state import StateFolder, write_atomic

_API_TIMEOUT = 180.0  # seconds; after a reboot everything in the node starts anew
_CREATE_TIMEOUT = 900.0  # seconds; the node image is pulled the first time


def docker_answers() -> bool:
    """Whether there is a Docker engine that we may use."""
    return succeeds("docker", "info", timeout=10)


def made(state: StateFolder) -> Path:
    """A file that is there once the kind cluster of `state` was made completely, until it is deleted."""
    return state.cluster / "kind"


def configuration(state: Path) -> str:
    """kind's configuration (YAML): one node that sees the state folder, for local volumes, at the same path as this
    machine.
    """
    mounts = [{"hostPath": str(state), "containerPath": str(state), "readOnly": True}]
    node = {"role": "control-plane", "extraMounts": mounts}
    return yaml.safe_dump({"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": [node]})


class KindCluster:
    """One kind cluster for each state folder, called after it; kind's own network enforces NetworkPolicy, its own
    storage class serves claims.
    """

    flavour = "kind"

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self._state = StateFolder(settings.state)
        self.name = f"sunfleet-{identity(self._state.cluster)}"  # one with this name is ours and nobody else's
        self.node = f"{self.name}-control-plane"

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of the administrator."""
        return self._state.kubeconfig

    def up(self, progress: Progress) -> None:
        """Make the cluster unless it is there, start its node, and give it its pretend GPUs."""
        preflight.require(preflight.building(programs.KIND, self._state.bin), progress)
        with self._lock(progress):
            programs.build(programs.KIND, self._state.bin, progress)
            if self._exists() and not made(self._state).exists():
                with progress.step("removing a cluster whose making was interrupted"):
                    self._delete()
            if self._exists():
                run("docker", "start", self.node)  # it may have been stopped, by us or by a reboot
            else:
                self._create(progress)
            write_atomic(self.kubeconfig, self._kind("get", "kubeconfig", f"--name={self.name}"), 0o600)
            with progress.step("API server"):
                self._wait_for_api()
            self._pretend_gpus()

    def down(self, progress: Progress, *, purge: bool = False, keep_objects: bool = False) -> None:
        """Delete the cluster; `keep_objects` stops its node instead. Its images go with it, whether or not `purge`."""
        del purge
        with self._lock(progress), progress.step("stopping the kind cluster"):
            if not self._program().exists() or not self._exists():
                return
            if keep_objects:
                run("docker", "stop", self.node)
            else:
                made(self._state).unlink(missing_ok=True)
                self._delete()

    def status(self) -> Status:
        """Its nodes."""
        try:
            parts = tuple(map(node_part, self._nodes()))
        except ClusterError as error:
            parts = (Part("node", False, "unknown", note=str(error)),)
        return Status(self.flavour, self.kubeconfig, parts)

    def has_image(self, ref: str) -> bool:
        """Whether the node's containerd holds `ref`."""
        images = ("ctr", "--namespace=k8s.io", "images", "list", "--quiet", f"name=={ref}")
        return ref in run("docker", "exec", self.node, *images).split()

    def load_image(self, archive: Path) -> None:
        """Load an OCI or Docker archive into the node."""
        self._kind("load", "image-archive", str(archive), f"--name={self.name}", timeout=None)

    def _lock(self, progress: Progress) -> AbstractContextManager[None]:
        return exclusive(self._state.root / "cluster.lock", progress)

    def _exists(self) -> bool:
        return self.name in self._kind("get", "clusters").split()

    def _create(self, progress: Progress) -> None:
        with progress.step("kind create cluster"), TemporaryDirectory() as folder:
            config = Path(folder) / "kind.yaml"
            config.write_text(configuration(self._settings.state))
            options = (f"--name={self.name}", f"--config={config}", f"--kubeconfig={self.kubeconfig}", "--wait=180s")
            self._kind("create", "cluster", *options, timeout=_CREATE_TIMEOUT)
            write_atomic(made(self._state), f"{self.name}\n")

    def _delete(self) -> None:
        self._kind("delete", "cluster", f"--name={self.name}", f"--kubeconfig={self.kubeconfig}")

    def _wait_for_api(self) -> None:
        deadline = time.monotonic() + _API_TIMEOUT
        while True:
            try:
                self._kubectl("get", "--raw=/readyz")
                return
            except ClusterError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(1)

    def _pretend_gpus(self) -> None:
        offer = {GPU: str(self._settings.gpus)}
        patch = json.dumps({"status": {"capacity": offer, "allocatable": offer}})
        self._kubectl("patch", "node", self.node, "--subresource=status", "--type=merge", f"--patch={patch}")

    def _nodes(self) -> list[dict[str, Any]]:
        return self._kubectl.items("nodes")

    def _program(self) -> Path:
        return self._state.bin / "kind"

    def _kind(self, *arguments: str, timeout: float | None = 120.0) -> str:
        return run(str(self._program()), *arguments, timeout=timeout)

    @property
    def _kubectl(self) -> Kubectl:
        return Kubectl.of(self, self._state)
