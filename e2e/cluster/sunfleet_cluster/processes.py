"""Start, recognise and stop the cluster's processes.

There are no pid files to go stale. A process carries a *mark* in its environment: its cluster's folder, its
component, its program and the key of its description. Looking through /proc for marks finds what is certainly ours,
whoever started or killed what in the meantime.
"""

import hashlib
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sunfleet_cluster.errors import ClusterError

PROC = Path("/proc")
MARK = "SUNFLEET_COMPONENT"
_INHERITED = {"PATH", "TZ", "HTTP_PROXY", "HTTPS_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"}  # in capitals or not
_LOG_LIMIT = 16 << 20  # bytes; a larger log is moved aside when its component starts
# Programs that become a component by exec: what is found on its way there counts as the component.
_PREFIXES = {"setsid", "nsenter", "setpriv"}
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Component:
    """A long-running program of the cluster.

    `argv`: the command, its first word a program's name or path. `files`: configuration whose content makes the
    process outdated when it changes.
    `health`: URL that answers 200 when it works, or `unix:PATH` of a socket that accepts.
    """

    name: str
    argv: tuple[str, ...]
    health: str
    files: tuple[Path, ...] = ()

    def program(self) -> Path:
        """The program's file; ClusterError when there is none."""
        found = shutil.which(self.argv[0])
        if found is None:
            raise ClusterError(
                f"{self.name}: the program {self.argv[0]} is missing: "
                "`make packages` installs Debian's, `make programs` builds the others"
            )
        return Path(found).resolve()

    def key(self) -> str:
        """Hash of the command, of the content of its files, and of which build of the program it is."""
        program = self.program().stat()
        digest = hashlib.sha256("\0".join([*self.argv, str(program.st_size), str(program.st_mtime_ns)]).encode())
        for file in self.files:
            digest.update(b"\0" + (file.read_bytes() if file.exists() else b""))
        return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Mark:
    """What a process of ours says about itself."""

    root: str
    component: str
    program: str
    key: str

    def __str__(self) -> str:
        return "#".join((self.root, self.component, self.program, self.key))

    @classmethod
    def parse(cls, text: str) -> "Mark | None":
        """The mark that `text` spells, or None."""
        parts = text.rsplit("#", 3)
        return cls(*parts) if len(parts) == 4 else None


@dataclass(frozen=True)
class Process:
    """A live process of a cluster. `ticks`: when it started, in clock ticks since boot. `parent`: who started it."""

    pid: int
    mark: Mark
    ticks: int
    parent: int = 0

    def age(self) -> float:
        """Seconds since it started."""
        return float((PROC / "uptime").read_text().split()[0]) - self.ticks / _TICKS_PER_SECOND


def component_environment(ours: Mapping[str, str], direct: str) -> dict[str, str]:
    """What a component gets of the environment `ours`: where programs are, and the way to the world, which must not be
    taken to the addresses `direct` (networks, separated by commas). Nothing else: components live for days, and the
    environment of a shell holds secrets.
    """
    kept = {name: value for name, value in ours.items() if name.upper() in _INHERITED}
    excepted = [value for name, value in ours.items() if name.upper() == "NO_PROXY" and value]
    return {**kept, "NO_PROXY": ",".join([*excepted, direct, "localhost", "127.0.0.1", ".svc", ".cluster.local"])}


def start(
    component: Component, root: Path, logs: Path, prefix: Sequence[str], direct: str = "127.0.0.1"
) -> "subprocess.Popen[bytes]":
    """Start `component` of the cluster in `root` as our child, behind the command `prefix`; `direct`: see
    `component_environment`.
    """
    program = component.program()
    mark = Mark(str(root), component.name, program.name, component.key())
    log = log_file(logs, component.name)
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > _LOG_LIMIT:
        log.replace(log.with_suffix(".log.1"))
    with log.open("ab") as output:
        return subprocess.Popen(
            [*prefix, str(program), *component.argv[1:]],
            env={**component_environment(os.environ, direct), MARK: str(mark)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # a Ctrl-C in our terminal is not for it
            cwd="/",
        )


def start_detached(component: Component, root: Path, logs: Path, prefix: Sequence[str], direct: str) -> None:
    """Start `component` as nobody's child: it outlives us, and whoever is process 1 buries it."""
    # setsid ends as soon as it has forked.
    start(component, root, logs, ("setsid", "--fork", *prefix), direct).wait()


def log_file(logs: Path, component: str) -> Path:
    """Where `component` writes its log."""
    return logs / f"{component}.log"


def log_end(logs: Path, component: str, lines: int = 15) -> str:
    """The last lines of `component`'s log, for an error message."""
    file = log_file(logs, component)
    if not file.exists():
        return f"(no log at {file})"
    with file.open("rb") as log:
        log.seek(max(0, file.stat().st_size - (64 << 10)))
        end = log.read().decode(errors="replace").splitlines()[-lines:]
    return "\n".join([f"the end of {file}:", *(f"  {line[:300]}" for line in end)])


def find(root: Path) -> dict[str, Process]:
    """Live processes of the cluster in `root`, by component; of two of one component (see `every`) the older."""
    return {each.mark.component: each for each in sorted(every(root), key=lambda each: -each.ticks)}


def every(root: Path) -> list[Process]:
    """Every process that is a component of the cluster in `root`.

    Two of one component should not be, and come of a run that was killed while it started one.
    """
    found = list(_marked(root))
    # A child that has not called exec yet looks like its parent.
    known = {(each.pid, each.mark.component) for each in found}
    return [each for each in found if (each.parent, each.mark.component) not in known]


def _marked(root: Path) -> Iterator[Process]:
    for folder in PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            process = _read(folder, str(root))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # gone while we looked, a kernel thread, or another user's
        if process is not None:
            yield process


def _read(folder: Path, root: str) -> Process | None:
    mark = _mark(folder)
    if mark is None or mark.root != root:
        return None
    # Children inherit the mark (containerd's shims, programs that kubelet calls). Only the program itself is the
    # component, and what is about to become it: whoever starts one may be killed before it has.
    if (folder / "exe").readlink().name.removesuffix(" (deleted)") not in {mark.program, *_PREFIXES}:
        return None
    parent, ticks = _parent_and_start(folder)
    return Process(int(folder.name), mark, ticks, parent)


def _mark(folder: Path) -> Mark | None:
    prefix = f"{MARK}=".encode()
    for entry in (folder / "environ").read_bytes().split(b"\0"):
        if entry.startswith(prefix):
            return Mark.parse(entry.removeprefix(prefix).decode(errors="replace"))
    return None


def _parent_and_start(folder: Path) -> tuple[int, int]:
    # The second field is the program's name in brackets and may hold anything; the parent is the second after it and
    # the start the 20th.
    fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
    return int(fields[1]), int(fields[19])


def stop(processes: Iterable[Process], grace: float) -> None:
    """End `processes` together: ask, and after `grace` seconds insist."""
    handles = [handle for handle in map(_open, processes) if handle is not None]
    try:
        _signal(handles, signal.SIGTERM)
        remaining = _wait(handles, grace)
        _signal(remaining, signal.SIGKILL)
        _wait(remaining, 10.0)
    finally:
        for handle in handles:
            os.close(handle)


def _open(process: Process) -> int | None:
    """A handle that names this very process for as long as it is open, even when its number is given to another one."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return None
    try:
        if _parent_and_start(PROC / str(process.pid))[1] == process.ticks:
            return handle
    except FileNotFoundError:
        pass
    os.close(handle)
    return None


def _signal(handles: Iterable[int], number: signal.Signals) -> None:
    for handle in handles:
        try:
            signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            continue


def _wait(handles: list[int], timeout: float) -> list[int]:
    """Wait until the processes behind `handles` are gone; those that remain after `timeout` seconds."""
    poller = select.poll()
    for handle in handles:
        poller.register(handle, select.POLLIN)
    remaining = set(handles)
    deadline = time.monotonic() + timeout
    while remaining and (left := deadline - time.monotonic()) > 0:
        for handle, _ in poller.poll(left * 1000):
            poller.unregister(handle)
            remaining.discard(handle)
    return sorted(remaining)
