"""Where everything that is built or downloaded lies, and how files are written there.

Layout of `$SUNFLEET_STATE` (default `~/.local/state/sunfleet`):

    bin/       the cluster's programs
    engine/    the engine's Python environment
    models/    sample weights
    images/    image archives and build records
    cluster/   certificates, etcd, containerd, logs, admin.kubeconfig
"""

import os
import shutil
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sunfleet_api.settings import read
from sunfleet_cluster.errors import ClusterError
from sunfleet_cluster.settings import ClusterSettings


@dataclass(frozen=True)
class StateFolder:
    """Paths below one state folder; none of them need exist."""

    root: Path

    @classmethod
    def from_env(cls) -> Self:
        """The folder that `SUNFLEET_STATE` names, or the default."""
        return cls(read(ClusterSettings).state)

    @property
    def bin(self) -> Path:
        """Programs of the cluster (kube-apiserver, kubectl, ...)."""
        return self.root / "bin"

    @property
    def engine(self) -> Path:
        """The engine's Python environment."""
        return self.root / "engine"

    @property
    def models(self) -> Path:
        """Sample weights."""
        return self.root / "models"

    @property
    def images(self) -> Path:
        """Image archives and the records of what they were built from."""
        return self.root / "images"

    @property
    def cluster(self) -> Path:
        """Everything of the cluster that this state folder owns."""
        return self.root / "cluster"

    @property
    def kubeconfig(self) -> Path:
        """The cluster's administrator."""
        return self.cluster / "admin.kubeconfig"


def write_atomic(path: Path, content: str | bytes, mode: int = 0o644) -> None:
    """Write `content` so that `path` holds the old or the new content whenever the process dies; makes missing
    folders.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    unfinished = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.chmod(mode)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def refuse_foreign(folder: Path, ours: Collection[str]) -> None:
    """ClusterError when `folder` holds something and none of the entries `ours`: whoever made it, it was not we."""
    if folder.is_dir() and (found := {path.name for path in folder.iterdir()}) and not found & set(ours):
        shown = ", ".join(sorted(found)[:3])
        raise ClusterError(f"{folder} holds what we did not make ({shown}): set SUNFLEET_STATE to a folder of its own")


def discard(folder: Path) -> None:
    """Delete `folder` so that a process that dies meanwhile leaves all of it or nothing under its name."""
    if folder.exists():
        folder.rename(_waste(folder))
    sweep(folder)


def sweep(folder: Path) -> None:
    """Delete what a killed `discard` of `folder` left."""
    for waste in folder.parent.glob(f"{_waste(folder).stem}.*"):
        shutil.rmtree(waste)


def _waste(folder: Path) -> Path:
    """A free name beside `folder`."""
    stem = f".deleted-{folder.name}"
    return next(name for count in range(1000) if not (name := folder.with_name(f"{stem}.{count}")).exists())
