"""What containerd holds and what it leaves behind: images, shims, mounts and cgroups."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sunfleet_cluster import oci
from sunfleet_cluster.commands import run, succeeds
from sunfleet_cluster.errors import ClusterError
from sunfleet_cluster.health import probe
from sunfleet_cluster.layout import Layout
from sunfleet_cluster.processes import PROC
from sunfleet_cluster.state import discard

_CGROUPS = Path("/sys/fs/cgroup")
_SHIM = "containerd-shim-runc-v2"
_KUBELET_CONTROLLERS = {"cpu", "cpuset", "memory", "hugetlb", "pids"}


def ctr(layout: Layout, *arguments: str, timeout: float | None = 120.0) -> str:
    """Run containerd's client in the namespace that kubelet uses; ClusterError, too, when the cluster is down."""
    if problem := probe(f"unix:{layout.containerd_socket}"):
        raise ClusterError(f"the cluster's containerd {problem}: `make cluster-up` starts it")
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
    archive = layout.root / f"{name}.tar"
    archive.unlink(missing_ok=True)  # of a run that was killed
    if not has_image(layout, ref):
        try:
            oci.write_archive(archive, ref, program)
            load_archive(layout, archive)
        finally:
            archive.unlink(missing_ok=True)
    return ref


def ensure_cgroup(layout: Layout) -> None:
    """Make the cgroup that holds all pods, in every hierarchy; kubelet insists that it exists.

    ClusterError when the kernel does not let us.
    """
    for hierarchy in cgroup_trees():
        folder = hierarchy / layout.cgroup
        try:
            delegate_controllers(hierarchy)
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise ClusterError(
                f"no cgroup for pods can be made in {hierarchy} ({error.strerror}): a container needs --privileged, "
                "and with the new cgroups its own processes must not sit in the topmost one"
            ) from error
        shares = folder / "cpu.shares"
        if shares.exists():
            # One group against every process outside of it: give it a full machine's weight, as kubelet gives to its
            # own topmost group.
            shares.write_text(str(1024 * (os.cpu_count() or 1)))


def delegate_controllers(hierarchy: Path) -> None:
    """Let cgroups below the top of a tree of the new kind have the controllers that kubelet wants of its root.

    Trees of the old kind have one controller each and nothing to delegate.
    """
    available, delegated = hierarchy / "cgroup.controllers", hierarchy / "cgroup.subtree_control"
    if not available.exists():
        return
    wanted = _KUBELET_CONTROLLERS & set(available.read_text().split())
    if missing := sorted(wanted - set(delegated.read_text().split())):
        delegated.write_text(" ".join(f"+{controller}" for controller in missing))


def forget_dead_containers(layout: Layout) -> None:
    """Delete what containerd remembers of running containers when none runs: after a reboot, a restart of the container
    that we are in, or a `down` that was killed. Call it only while containerd is stopped.
    """
    if _shims(layout) or not layout.containerd_state.exists():
        return
    unmount_below(layout.containerd_state)
    discard(layout.containerd_state)


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


def unmount_below(folder: Path) -> None:
    """Unmount everything in `folder`: volumes, container roots, pods' network namespaces.

    ClusterError when something stays mounted: whoever deletes the folder afterwards would delete what is mounted there,
    such as the folder behind a local volume.
    """
    for target in _mounts(folder):
        succeeds("umount", "--lazy", str(target))  # one may take others with it; what counts is what is left
    if stuck := _mounts(folder):
        raise ClusterError(f"still mounted, so nothing is deleted: {', '.join(map(str, stuck))}")


def _mounts(folder: Path) -> list[Path]:
    return mounts_below(folder, (PROC / "self" / "mountinfo").read_bytes())


def mounts_below(root: Path, mountinfo: bytes) -> list[Path]:
    """Mount points at or below `root`, innermost first."""
    targets = [_unescaped(line.split()[4]) for line in mountinfo.splitlines()]
    below = [target for target in targets if target.is_relative_to(root)]
    return sorted(below, key=lambda target: len(target.parts), reverse=True)


def _unescaped(name: bytes) -> Path:
    """A path as the kernel writes it: bytes, with blanks and backslashes in octal."""
    return Path(os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), name)))


def remove_cgroups(layout: Layout) -> None:
    """Remove the pods' cgroups; ClusterError when a process is still in one."""
    for hierarchy in cgroup_trees():
        for folder, _, _ in os.walk(hierarchy / layout.cgroup, topdown=False):
            try:
                Path(folder).rmdir()
            except OSError as error:
                left = ", ".join(map(str, sorted(_members(Path(folder))))) or "none"
                raise ClusterError(
                    f"the cgroup {folder} cannot be removed ({error.strerror}; processes in it: {left}): they may be "
                    "waiting for a disk; run the same again when they are gone"
                ) from error


def cgroup_trees() -> list[Path]:
    """Roots of the cgroup trees: one with the new cgroups, one per controller with the old ones."""
    lines = (PROC / "self" / "mountinfo").read_text().splitlines()
    mounts = [(Path(line.split()[4]), line.partition(" - ")[2].split()[0]) for line in lines]
    return [path for path, kind in mounts if kind in {"cgroup", "cgroup2"} and path.is_relative_to(_CGROUPS)]


def _pod_processes(layout: Layout) -> set[int]:
    return {pid for hierarchy in cgroup_trees() for pid in _members(hierarchy / layout.cgroup)}


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
