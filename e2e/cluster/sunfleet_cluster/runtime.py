"""What containerd holds and what it leaves behind: images, shims, mounts and cgroups."""

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sunfleet_cluster import oci
from sunfleet_cluster.commands import run
from sunfleet_cluster.errors import ClusterError
from sunfleet_cluster.layout import Layout
from sunfleet_cluster.processes import PROC

_CGROUPS = Path("/sys/fs/cgroup")
_SHIM = "containerd-shim-runc-v2"


def ctr(layout: Layout, *arguments: str, timeout: float | None = 120.0) -> str:
    """Run containerd's client in the namespace that kubelet uses."""
    return run("ctr", f"--address={layout.containerd_socket}", "--namespace=k8s.io", *arguments, timeout=timeout)


def has_image(layout: Layout, ref: str) -> bool:
    """Whether containerd holds the image `ref` (full name with tag)."""
    return ref in ctr(layout, "images", "list", "--quiet", f"name=={ref}").split()


def load_archive(layout: Layout, archive: Path) -> None:
    """Load an OCI or Docker archive."""
    # No limit: an engine image of several gigabytes takes minutes to unpack.
    ctr(layout, "images", "import", str(archive), timeout=None)


def load_program(layout: Layout, name: str, program: Path) -> str:
    """Load the image of one static program unless it is there; the image's name."""
    ref = oci.reference(name, program)
    if not has_image(layout, ref):
        with tempfile.TemporaryDirectory(dir=layout.root) as folder:
            archive = Path(folder) / "image.tar"
            oci.write_archive(archive, ref, program)
            load_archive(layout, archive)
    return ref


def ensure_cgroup(layout: Layout) -> None:
    """Make the cgroup that holds all pods, in every hierarchy; kubelet insists that it exists."""
    for hierarchy in _hierarchies():
        folder = hierarchy / layout.cgroup
        folder.mkdir(exist_ok=True)
        shares = folder / "cpu.shares"
        if shares.exists():
            # One group against every process outside of it: give it a full machine's weight, as kubelet gives to its
            # own topmost group.
            shares.write_text(str(1024 * (os.cpu_count() or 1)))


def end_pods(layout: Layout, grace: float) -> None:
    """End every process of every pod (asked first, insisted on after `grace` seconds) and then the shims that
    watched over them.
    """
    _kill(_pod_processes(layout), signal.SIGTERM)
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline and _pod_processes(layout):
        time.sleep(0.1)
    _kill_until_gone(lambda: _pod_processes(layout))
    _kill_until_gone(lambda: _shims(layout))


def unmount_all(layout: Layout) -> None:
    """Unmount everything below the cluster's folder: volumes, container roots, pods' network namespaces.

    ClusterError when something stays mounted: whoever deletes the folder afterwards would delete what is mounted there,
    such as the folder behind a local volume.
    """
    for target in _mounts(layout):
        run("umount", "--lazy", str(target))
    if stuck := _mounts(layout):
        raise ClusterError(f"still mounted, so nothing is deleted: {', '.join(map(str, stuck))}")


def _mounts(layout: Layout) -> list[Path]:
    return mounts_below(layout.root, (PROC / "self" / "mountinfo").read_text())


def mounts_below(root: Path, mountinfo: str) -> list[Path]:
    """Mount points at or below `root`, innermost first."""
    targets = [line.split()[4].encode().decode("unicode_escape") for line in mountinfo.splitlines()]
    below = [Path(target) for target in targets if Path(target).is_relative_to(root)]
    return sorted(below, key=lambda target: len(target.parts), reverse=True)


def remove_cgroups(layout: Layout) -> None:
    """Remove the pods' cgroups, which must be empty."""
    for hierarchy in _hierarchies():
        top = hierarchy / layout.cgroup
        folders = [Path(folder) for folder, _, _ in os.walk(top, topdown=False)]
        for folder in folders:
            folder.rmdir()


def _hierarchies() -> list[Path]:
    """Roots of the cgroup trees: one with the new cgroups, one per controller with the old ones."""
    lines = (PROC / "self" / "mountinfo").read_text().splitlines()
    mounts = [(Path(line.split()[4]), line.partition(" - ")[2].split()[0]) for line in lines]
    return [path for path, kind in mounts if kind in {"cgroup", "cgroup2"} and path.is_relative_to(_CGROUPS)]


def _pod_processes(layout: Layout) -> set[int]:
    return {pid for hierarchy in _hierarchies() for pid in _members(hierarchy / layout.cgroup)}


def _members(cgroup: Path) -> Iterator[int]:
    for folder, _, _ in os.walk(cgroup):
        try:
            yield from map(int, (Path(folder) / "cgroup.procs").read_text().split())
        except OSError:
            continue  # the pod's cgroup went while we looked


def _shims(layout: Layout) -> set[int]:
    """Shims of our containerd, alive whether or not it is: they name its socket."""
    address = str(layout.containerd_socket).encode()
    found = set[int]()
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if words[0].endswith(_SHIM.encode()) and address in words:
                found.add(int(folder.name))
    return found


def _kill(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def _kill_until_gone(members: Callable[[], set[int]], timeout: float = 10.0) -> None:
    deadline = time.monotonic() + timeout
    while (pids := members()) and time.monotonic() < deadline:
        _kill(pids, signal.SIGKILL)
        time.sleep(0.05)
