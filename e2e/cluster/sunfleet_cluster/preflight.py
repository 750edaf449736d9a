"""What this machine must have before a cluster is made, checked at once and before anything is changed."""

import os
import platform
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from sunfleet_cluster import network, processes, programs
from sunfleet_cluster.commands import succeeds
from sunfleet_cluster.errors import ClusterError, PreflightError
from sunfleet_cluster.layout import Layout
from sunfleet_cluster.processes import PROC
from sunfleet_cluster.programs import Program
from sunfleet_cluster.progress import Progress
from sunfleet_cluster.state import StateFolder

GIB = 1 << 30
BUILD_DISK = 8 * GIB  # Go's caches 5 GB, the programs 0.6 GB
RUN_DISK = 2 * GIB  # etcd, logs, pods' writable layers
ENGINE_DISK = 16 * GIB  # the environment, and uv's cache of it where that lies on another file system
IMAGES_DISK = 3 * GIB  # in the builder's store, in an archive and in the cluster
FLEET_MEMORY = 12 * GIB  # three engines of 2.9 GB, the control plane, the reference
RUN_MEMORY = 2 * GIB  # the control plane takes 1.2 GB, DNS and a few small pods the rest
_CGROUPS = Path("/sys/fs/cgroup")
# Limit and use of a container's memory, and what of the use are cached files, with new cgroups and with old ones.
_CGROUP_MEMORY = (
    ("memory.max", "memory.current", "memory.stat", "file", "shmem"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_cache",
        "total_shmem",
    ),
)
_MAX_SOCKET_PATH = 107  # bytes; the kernel's limit for a Unix socket's address


@dataclass(frozen=True)
class Check:
    """A requirement: `problem` says what is lacking and how to mend it, None when nothing is."""

    name: str
    problem: str | None


def require(checks: Sequence[Check], progress: Progress) -> None:
    """PreflightError that lists every problem of `checks`, if there is one."""
    problems = [f"  - {check.name}: {check.problem}" for check in checks if check.problem]
    if problems:
        raise PreflightError("\n".join(["this machine is not ready for the cluster:", *problems]))
    progress.say(f"Checked: {', '.join(check.name for check in checks)}")


def embedded(layout: Layout, state: Path) -> list[Check]:
    """Requirements of the embedded cluster; those of starting and building only where something is to be started or
    built.
    """
    checks = [*_machine(layout), *building(programs.EMBEDDED, layout.bin)]
    if not processes.find(layout.root):
        checks += [_file_system(state), _memory(RUN_MEMORY), _disk(state, RUN_DISK), _subnet(layout)]
    return checks


def embedded_fleet(layout: Layout, state: StateFolder) -> list[Check]:
    """Requirements of everything up to a demo's answer on the embedded cluster, so that nobody learns after half an
    hour what is lacking; what is done already needs nothing.
    """
    checks = _machine(layout)
    if not processes.find(layout.root):
        checks += [_file_system(state.root), _memory(FLEET_MEMORY), _subnet(layout)]
    return [*checks, *fleet(programs.EMBEDDED, state)]


def fleet(wanted: Sequence[Program], state: StateFolder) -> list[Check]:
    """Requirements of the steps that every cluster of this machine has in common."""
    build = bool(programs.stale(wanted, state.bin))
    needs = (
        (build, BUILD_DISK),
        (not state.cluster.exists(), RUN_DISK),
        (not (state.root / "engine.json").exists(), ENGINE_DISK),
        (not (state.images / "refs.json").exists(), IMAGES_DISK),
    )
    disk = sum(room for still_open, room in needs if still_open)
    return [*([_go()] if build else []), *([_disk(state.root, disk)] if disk else [])]


def _machine(layout: Layout) -> list[Check]:
    return [root_user(), _platform(), _kernel(), _socket_path(layout)]


def building(wanted: Sequence[Program], bin_folder: Path) -> list[Check]:
    """Requirements of building those of `wanted` that are not built yet."""
    return [_go(), _disk(bin_folder, BUILD_DISK)] if programs.stale(wanted, bin_folder) else []


def root_user() -> Check:
    """Whether we may make network namespaces and mounts."""
    lacking = "network namespaces, mounts and cgroups are root's, so run it as root"
    return Check("root", None if os.geteuid() == 0 else lacking)


def _platform() -> Check:
    found = (platform.system(), platform.machine())
    supported = found == ("Linux", "x86_64")
    return Check("platform", None if supported else f"{' on '.join(found)}: only Linux on x86_64 is supported")


def _kernel() -> Check:
    lacking = []
    if "overlay" not in (PROC / "filesystems").read_text() and not succeeds("modprobe", "overlay"):
        lacking.append("overlay file systems (modprobe overlay)")
    if not (PROC / "sys/net/bridge").exists() and not succeeds("modprobe", "br_netfilter"):
        lacking.append("packet filtering on bridges (modprobe br_netfilter)")
    if os.geteuid() == 0 and not succeeds("unshare", "--net", "true"):
        lacking.append("network namespaces (a container needs --privileged)")
    return Check("kernel", f"lacks {'; '.join(lacking)}" if lacking else None)


def _file_system(state: Path) -> Check:
    """Whether images can be unpacked in the folder `state`: not where that lies in an overlay itself, as in most
    containers, nor on many network file systems.
    """
    if os.geteuid() != 0:
        return Check("file system", None)  # nothing can be mounted to find out; that root is needed is said anyway
    folder = _existing(state)
    with TemporaryDirectory(prefix=".sunfleet-", dir=folder) as scratch:
        for name in ("lower", "upper", "work", "merged"):
            (Path(scratch) / name).mkdir()
        mount = "cd $0 && mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged"
        works = succeeds("unshare", "--mount", "sh", "-c", mount, scratch)
    lacking = f"overlay file systems cannot lie in {folder}: set SUNFLEET_STATE to a folder on a local disk (a volume)"
    return Check("file system", None if works else lacking)


def _existing(folder: Path) -> Path:
    """`folder`, or the nearest above it that is there."""
    return next(parent for parent in (folder, *folder.parents) if parent.exists())


def _socket_path(layout: Layout) -> Check:
    length = len(os.fsencode(layout.containerd_socket)) + len(".ttrpc")
    excess = length - _MAX_SOCKET_PATH
    long = f"{layout.containerd_socket} is {excess} bytes too long for a socket: set SUNFLEET_STATE to a shorter path"
    return Check("path length", long if excess > 0 else None)


def _go() -> Check:
    needed = ".".join(map(str, programs.required_go()))
    get = f"get Go {needed} or newer from https://go.dev/dl/ and unpack it to /usr/local, or put its bin/ on PATH"
    found = programs.compiler_version()
    if found is None:
        return Check("Go", f"there is no `go` on PATH: {get}")
    version = programs.parse_go_version(found)
    return Check("Go", None if version >= programs.required_go() else f"`{found}` is too old: {get}")


def _memory(needed: int) -> Check:
    available = available_memory((PROC / "meminfo").read_text(), _CGROUPS)
    short = f"{available / GIB:.1f} GiB available, {needed / GIB:.0f} needed: stop something else"
    return Check(f"{needed // GIB} GiB of memory", short if available < needed else None)


def available_memory(meminfo: str, cgroups: Path) -> int:
    """Bytes that we may still use: of the machine (`/proc/meminfo`), or of the container that we are in."""
    fields = dict(line.split(":") for line in meminfo.splitlines())
    available = int(fields["MemAvailable"].split()[0]) * 1024
    return min([available, *(left for names in _CGROUP_MEMORY if (left := _left(cgroups, *names)) is not None)])


def _left(cgroups: Path, limit: str, used: str, stat: str, cache: str, shared: str) -> int | None:
    """Bytes below a limit on memory, those counted in that only cache files; None where there is no limit."""
    try:
        facts = dict(line.split() for line in (cgroups / stat).read_text().splitlines())
        reclaimable = int(facts[cache]) - int(facts[shared])
        return int((cgroups / limit).read_text()) - int((cgroups / used).read_text()) + reclaimable
    except (OSError, ValueError, KeyError):  # cgroups of the other kind, or the limit `max`
        return None


def require_disk(folder: Path, needed: int, what: str) -> None:
    """ClusterError when there is less than `needed` bytes of disk at `folder`, for `what`."""
    if problem := _disk(folder, needed).problem:
        raise ClusterError(f"{what} does not fit: {problem}")


def _disk(state: Path, needed: int) -> Check:
    folder = _existing(state)
    free = shutil.disk_usage(folder).free
    short = (
        f"{free / GIB:.1f} GiB free at {folder}, {needed / GIB:.0f} needed: "
        "free some, or set SUNFLEET_STATE to a folder on a larger disk"
    )
    return Check(f"{needed // GIB} GiB of disk", short if free < needed else None)


def _subnet(layout: Layout) -> Check:
    if shutil.which("ip") is None:
        return Check("addresses", None)  # it is about to be installed, and the range is checked again when it is used
    try:
        network.refuse_overlap(layout)
    except ClusterError as error:
        return Check("addresses", str(error))
    return Check("addresses", None)
