"""A cluster that somebody else made and that we were told to use."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sunfleet_cluster.cluster import Part, Status
from sunfleet_cluster.errors import ClusterError
from sunfleet_cluster.kubectl import Kubectl
from sunfleet_cluster.progress import Progress


@dataclass(frozen=True)
class ExternalCluster:
    """The cluster behind an existing kubeconfig: it is looked at, and never started, stopped or given images."""

    kubeconfig: Path
    kubectl: str = "kubectl"
    flavour: str = "external"

    def up(self, progress: Progress) -> None:
        """Check that it answers."""
        with progress.step(f"the API server of {self.kubeconfig}"):
            self._get("--raw", "/readyz")

    def down(self, progress: Progress, *, purge: bool = False, keep_objects: bool = False) -> None:
        """Refuse: it is not ours."""
        del progress, purge, keep_objects
        raise ClusterError(
            f"{self.kubeconfig} names a cluster that we did not make, so we do not stop it: "
            "unset SUNFLEET_USE_KUBECONFIG for ours"
        )

    def status(self) -> Status:
        """Its API server and its nodes."""
        try:
            nodes = self._nodes()
        except ClusterError as error:
            return Status(
                self.flavour, self.kubeconfig, (Part("kube-apiserver", False, "unreachable", note=str(error)),)
            )
        return Status(self.flavour, self.kubeconfig, (Part("kube-apiserver", True, "answers"), *map(node_part, nodes)))

    def has_image(self, ref: str) -> bool:
        """Whether a node says that it holds `ref`; nodes name at most their 50 largest images."""
        held = (image for node in self._nodes() for image in node.get("status", {}).get("images", ()))
        return any(ref in image.get("names", ()) for image in held)

    def load_image(self, archive: Path) -> None:
        """Refuse: its nodes pull from a registry."""
        raise ClusterError(
            f"{archive} cannot be loaded into a cluster that is not ours: "
            "push the image to a registry that its nodes pull from"
        )

    def _get(self, *arguments: str) -> str:
        return Kubectl(self.kubectl, self.kubeconfig, direct=False)("get", "--request-timeout=20s", *arguments)

    def _nodes(self) -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = json.loads(self._get("nodes", "--output=json"))["items"]
        return nodes


def node_part(node: dict[str, Any]) -> Part:
    """The line of `status` for a node object."""
    conditions = node.get("status", {}).get("conditions", [])
    ready = next((condition for condition in conditions if condition["type"] == "Ready"), {"status": "Unknown"})
    ok = ready["status"] == "True"
    return Part(
        f"node {node['metadata']['name']}",
        ok,
        "ready" if ok else "not ready",
        note="" if ok else ready.get("message", ""),
    )
