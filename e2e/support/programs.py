"""Programs from Go modules as images of the cluster: compiled once, loaded once."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

from sunfleet_cluster import oci, programs
from sunfleet_cluster.cluster import Cluster
from sunfleet_cluster.programs import Program
from sunfleet_cluster.progress import Progress
from sunfleet_cluster.state import StateFolder


def image(cluster: Cluster, program: Program) -> str:
    """The image that holds nothing but ``/NAME``, in the cluster."""
    folder = StateFolder.from_env().bin
    programs.build([program], folder, Progress())
    ref = oci.reference(program.name, folder / program.name)
    if not cluster.has_image(ref):
        with tempfile.TemporaryDirectory(prefix="sunfleet-image-") as scratch:
            archive = Path(scratch) / "image.tar"
            oci.write_archive(archive, ref, folder / program.name)
            cluster.load_image(archive)
    return ref


def module_folder(program: Program, module: str) -> Path:
    """Where the sources of ``module`` lie, in the version that ``program`` is built from; downloads them if need be."""
    command = ["go", "mod", "download", "-json", module]
    done = subprocess.run(command, cwd=program.folder, check=True, capture_output=True, text=True)
    return Path(json.loads(done.stdout)["Dir"])
