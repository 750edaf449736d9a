"""kubectl against one cluster."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from sunfleet_cluster.cluster import Cluster
from sunfleet_cluster.commands import run
from sunfleet_cluster.state import StateFolder


@dataclass(frozen=True)
class Kubectl:
    """The program `binary` with `kubeconfig`; every method raises ClusterError with what kubectl said.

    `direct`: never through a proxy of the environment, which kubectl would ask even for a cluster on this machine.
    `manager`: the field manager of what is applied.
    """

    binary: str
    kubeconfig: Path
    direct: bool = True
    manager: str = "sunfleet-install"

    @classmethod
    def of(cls, cluster: Cluster, state: StateFolder) -> Self:
        """Our own kubectl where it was built, else the one on PATH."""
        own = state.bin / "kubectl"
        return cls(str(own) if own.exists() else "kubectl", cluster.kubeconfig, direct=cluster.flavour != "external")

    def __call__(self, *arguments: str, stdin: str | None = None, timeout: float = 120.0) -> str:
        """Standard output of `kubectl ARGUMENTS`."""
        direct = ("env", "NO_PROXY=*", "no_proxy=*") if self.direct else ()
        return run(*direct, self.binary, f"--kubeconfig={self.kubeconfig}", *arguments, stdin=stdin, timeout=timeout)

    def items(self, *arguments: str) -> list[dict[str, Any]]:
        """The objects of `kubectl get ARGUMENTS`."""
        found: list[dict[str, Any]] = json.loads(self("get", *arguments, "--output=json"))["items"]
        return found

    def apply(self, *arguments: str, stdin: str | None = None) -> str:
        """Server-side apply: CRDs may be larger than the annotation of a client-side one holds."""
        options = ("--server-side", "--force-conflicts", f"--field-manager={self.manager}")
        return self("apply", *options, *arguments, stdin=stdin)
