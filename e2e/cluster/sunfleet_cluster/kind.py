"""A kind cluster, where a Docker engine answers. Built and unit-tested, but never tried on a real engine: see
docs/cluster.md.
"""

import json
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
from sunfleet_cluster.lock import exclusive
from sunfleet_cluster.progress import Progress
from sunfleet_cluster.settings import ClusterSettings
from sunfleet_cluster.state import StateFolder, write_atomic

NAME = "sunfleet"
NODE = f"{NAME}-control-plane"
_CREATE_TIMEOUT = 900.0  # seconds; the node image is pulled the first time


def docker_answers() -> bool:
    """Whether there is a Docker engine that we may use."""
    return succeeds("timeout", "10", "docker", "info")


def configuration(state: Path) -> str:
    """kind's configuration (YAML): one node that sees the state folder, for local volumes, at the same path as this
    machine.
    """
    mounts = [{"hostPath": str(state), "containerPath": str(state), "readOnly": True}]
    node = {"role": "control-plane", "extraMounts": mounts}
    return yaml.safe_dump({"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": [node]})


class KindCluster:
    """One kind cluster called `sunfleet`; kind's own network enforces NetworkPolicy, its own storage class serves
    claims.
    """

    flavour = "kind"

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self._state = StateFolder(settings.state)

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of the administrator."""
        return self._state.kubeconfig

    def up(self, progress: Progress) -> None:
        """Make the cluster unless it is there, and its pretend GPUs."""
        preflight.require(preflight.building(programs.KIND, self._state.bin), progress)
        with exclusive(self._state.root / "cluster.lock", progress):
            programs.build(programs.KIND, self._state.bin, progress)
            if not self._exists():
                self._create(progress)
            write_atomic(self.kubeconfig, self._kind("get", "kubeconfig", f"--name={NAME}"), 0o600)
            self._pretend_gpus()

    def down(self, progress: Progress, *, purge: bool = False, keep_objects: bool = False) -> None:
        """Delete the cluster; `keep_objects` stops its node instead. Its images go with it, whether or not `purge`."""
        del purge
        with exclusive(self._state.root / "cluster.lock", progress), progress.step("stopping the kind cluster"):
            if keep_objects:
                run("docker", "stop", NODE)
            elif self._exists():
                self._kind("delete", "cluster", f"--name={NAME}", f"--kubeconfig={self.kubeconfig}")

    def status(self) -> Status:
        """Its nodes."""
        try:
            parts = tuple(map(node_part, self._nodes()))
        except ClusterError as error:
            parts = (Part("node", False, "unknown", note=str(error)),)
        return Status(self.flavour, self.kubeconfig, parts)

    def has_image(self, ref: str) -> bool:
        """Whether the node's containerd holds `ref`."""
        listed = run("docker", "exec", NODE, "ctr", "--namespace=k8s.io", "images", "list", "--quiet", f"name=={ref}")
        return ref in listed.split()

    def load_image(self, archive: Path) -> None:
        """Load an OCI or Docker archive into the node."""
        self._kind("load", "image-archive", str(archive), f"--name={NAME}", timeout=None)

    def _exists(self) -> bool:
        return NAME in self._kind("get", "clusters").split()

    def _create(self, progress: Progress) -> None:
        with progress.step("kind create cluster"), TemporaryDirectory() as folder:
            config = Path(folder) / "kind.yaml"
            config.write_text(configuration(self._settings.state))
            options = (f"--name={NAME}", f"--config={config}", f"--kubeconfig={self.kubeconfig}", "--wait=180s")
            self._kind("create", "cluster", *options, timeout=_CREATE_TIMEOUT)

    def _pretend_gpus(self) -> None:
        offer = {GPU: str(self._settings.gpus)}
        patch = json.dumps({"status": {"capacity": offer, "allocatable": offer}})
        self._kubectl("patch", "node", NODE, "--subresource=status", "--type=merge", f"--patch={patch}")

    def _nodes(self) -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = json.loads(self._kubectl("get", "nodes", "-o=json"))["items"]
        return nodes

    def _kind(self, *arguments: str, timeout: float | None = 120.0) -> str:
        return run(str(self._state.bin / "kind"), *arguments, timeout=timeout)

    def _kubectl(self, *arguments: str) -> str:
        return run(str(self._state.bin / "kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments)
