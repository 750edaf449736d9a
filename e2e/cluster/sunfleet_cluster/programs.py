"""The programs that are built from pinned Go modules, and when a build can be skipped.

A program's *key* is a hash of everything its bytes depend on: the module's pins, our own source, the flags and the
compiler's version. The key of what lies in `bin/` is kept beside it and written last, so an interrupted build is
only ever done again.
"""

import hashlib
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sunfleet_cluster.commands import follow
from sunfleet_cluster.lock import exclusive
from sunfleet_cluster.progress import Progress, Step
from sunfleet_cluster.state import write_atomic

KUBERNETES_VERSION = "v1.34.4"
GO_MODULES = Path(__file__).resolve().parents[1] / "go"
_PINS = ("go.mod", "go.sum")
_VERSIONED = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


@dataclass(frozen=True)
class Program:
    """A Go program: the module folder that pins it, and its package; `versioned`: it reports Kubernetes' version."""

    name: str
    module: str
    package: str
    versioned: bool = False

    @property
    def folder(self) -> Path:
        """Folder of the module."""
        return GO_MODULES / self.module

    @property
    def link_flags(self) -> str:
        """Flags for the Go linker: no symbol tables, and the version that the program reports."""
        flags = ["-s", "-w"]
        if self.versioned:
            major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
            fields = {"gitVersion": KUBERNETES_VERSION, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
            flags += [f"-X {package}.{field}={value}" for package in _VERSIONED for field, value in fields.items()]
        return " ".join(flags)

    def key(self, compiler: str) -> str:
        """Hash of everything the program's bytes depend on."""
        digest = hashlib.sha256()
        for part in (self.package, self.link_flags, compiler):
            digest.update(part.encode() + b"\0")
        pins = [self.folder / pin for pin in _PINS if (self.folder / pin).exists()]
        for file in [*pins, *self._sources()]:
            digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
        return digest.hexdigest()

    def _sources(self) -> list[Path]:
        return sorted((self.folder / self.package).glob("*.go")) if self.package.startswith(".") else []


def _kubernetes(name: str) -> Program:
    return Program(name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}", versioned=True)


CONTROL_PLANE = (
    # Kubernetes' own choice of version: Debian's is too old for reads from the API server's cache.
    Program("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    *(_kubernetes(name) for name in ("kube-apiserver", "kube-controller-manager", "kubectl")),
)
# Not the cluster's, but what many install on theirs with: the chart is tested with it.
HELM = Program("helm", "helm", "helm.sh/helm/v4/cmd/helm")
EMBEDDED = (
    *CONTROL_PLANE,
    *(_kubernetes(name) for name in ("kube-scheduler", "kubelet", "kube-proxy")),
    Program("pause", "kubernetes", "./pause"),
    Program("kube-router", "addons", "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"),
    Program("coredns", "addons", "./coredns"),
    HELM,
)
# What the smoke tests run in pods.
PROBE = Program("probe", "probe", ".")
# What the weights' downloads are tested against: one to two minutes of two cores the first time, only where tests run.
# Its module lies one folder deeper, so that no cluster asks for the newer Go that it wants.
OBJECT_STORE = Program("versitygw", "tests/versitygw", "github.com/versity/versitygw/cmd/versitygw")
# Scalers that the samples are tried with, in the long autoscaling suite alone: KEDA takes two cores twenty minutes.
PROMETHEUS_ADAPTER = Program(
    "prometheus-adapter", "tests/prometheus-adapter", "sigs.k8s.io/prometheus-adapter/cmd/adapter"
)
KEDA = (
    Program("keda", "tests/keda", "github.com/kedacore/keda/v2/cmd/operator"),
    Program("keda-adapter", "tests/keda", "github.com/kedacore/keda/v2/cmd/adapter"),
)
KIND = (_kubernetes("kubectl"), Program("kind", "kind", "sigs.k8s.io/kind"), HELM)


def required_go() -> tuple[int, int]:
    """The oldest Go (major, minor) that builds every module: the highest `go` line of the modules."""
    texts = (file.read_text() for file in GO_MODULES.glob("*/go.mod"))
    versions = (re.search(r"^go (\d+)\.(\d+)", text, re.MULTILINE) for text in texts)
    return max((int(found[1]), int(found[2])) for found in versions if found)


def compiler_version() -> str | None:
    """What `go version` says, or None where there is no Go."""
    try:
        done = subprocess.run(["go", "version"], capture_output=True, text=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def parse_go_version(said: str) -> tuple[int, int]:
    """(major, minor) in the output of `go version`; (0, 0) where there is none."""
    found = re.search(r"go(\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def stale(programs: Iterable[Program], bin_folder: Path) -> list[Program]:
    """Those of `programs` that are absent from `bin_folder` or were built from something else; without a compiler,
    those that are absent.
    """
    compiler = compiler_version()
    return [program for program in programs if not _current(program, bin_folder, compiler)]


def _current(program: Program, bin_folder: Path, compiler: str | None) -> bool:
    if not (bin_folder / program.name).is_file():
        return False
    if compiler is None:
        return True
    try:
        return _key_file(program, bin_folder).read_text() == program.key(compiler)
    except FileNotFoundError:
        return False


def build(programs: Iterable[Program], bin_folder: Path, progress: Progress) -> None:
    """Build what `stale` names into `bin_folder`, one run at a time; ClusterError when the compiler fails."""
    programs = tuple(programs)
    if not stale(programs, bin_folder):
        return
    with exclusive(bin_folder / ".lock", progress):
        wanted = stale(programs, bin_folder)  # another run may have built them meanwhile
        progress.say(f"Building into {bin_folder}: {', '.join(program.name for program in wanted) or 'nothing more'}")
        if len(wanted) == len(EMBEDDED):
            progress.say("The first time takes 8-12 minutes on two cores, later times take seconds.")
        for program in wanted:
            with progress.step(program.name) as step:
                _build_one(program, bin_folder, step)


def _build_one(program: Program, bin_folder: Path, step: Step) -> None:
    unfinished = bin_folder / f".{program.name}.unfinished"
    flags = ["-v", "-trimpath", "-buildvcs=false", "-ldflags", program.link_flags]
    # Before it is built: what changes meanwhile makes the program stale, whether or not the compiler saw it.
    key = program.key(compiler_version() or "")
    _run_go(["go", "build", *flags, "-o", str(unfinished), program.package], program.folder, step)
    unfinished.replace(bin_folder / program.name)
    write_atomic(_key_file(program, bin_folder), key)


def _run_go(command: list[str], folder: Path, step: Step) -> None:
    """Run the compiler; `-v` makes it print each package it compiles, which is the only measure of progress there
    is.
    """
    compiled = 0

    def heed(line: str) -> bool:
        nonlocal compiled
        if _is_package(line):
            compiled += 1
            step.detail = f"{compiled} packages compiled"
        return not _is_package(line)

    follow(command, heed, folder=folder, variables={"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"})


def _is_package(line: str) -> bool:
    return re.fullmatch(r"[\w.\-/~+]+", line.strip()) is not None


def _key_file(program: Program, bin_folder: Path) -> Path:
    return bin_folder / ".keys" / program.name
