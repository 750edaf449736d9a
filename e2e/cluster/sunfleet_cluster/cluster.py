"""What every kind of cluster can do, and which kind this machine gets."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from sunfleet_cluster.progress import Progress


@dataclass(frozen=True)
class Part:
    """One line of `status`: a component, the node, the network, ... `age`: seconds since it started, None where it
    has no start.
    """

    name: str
    ok: bool
    state: str
    pid: int | None = None
    age: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Status:
    """What a cluster looks like; nothing was changed to find out."""

    flavour: str
    kubeconfig: Path
    parts: tuple[Part, ...]

    @property
    def healthy(self) -> bool:
        """Whether every part works."""
        return bool(self.parts) and all(part.ok for part in self.parts)

    def to_json(self) -> str:
        """For programs."""
        document = {"flavour": self.flavour, "kubeconfig": str(self.kubeconfig), "healthy": self.healthy}
        return json.dumps({**document, "parts": [asdict(part) for part in self.parts]}, indent=2)


class Cluster(Protocol):
    """A cluster that the fleet is installed on. Every method raises ClusterError with a message for a person."""

    @property
    def flavour(self) -> str:
        """`embedded`, `kind` or `external`."""

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of its administrator."""

    def up(self, progress: Progress) -> None:
        """Make the cluster, or whatever is missing of it."""

    def down(self, progress: Progress, *, purge: bool = False, keep_objects: bool = False) -> None:
        """Stop it and forget its objects; `purge` forgets images and certificates too, `keep_objects` forgets
        nothing.
        """

    def status(self) -> Status:
        """Look at it, changing nothing."""

    def has_image(self, ref: str) -> bool:
        """Whether pods can run the image `ref` (full name with tag) without pulling it."""

    def load_image(self, archive: Path) -> None:
        """Give the node the images of an OCI or Docker archive."""
