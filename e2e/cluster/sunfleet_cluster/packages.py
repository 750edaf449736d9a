"""Programs that come from Debian, and how they are installed."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from sunfleet_cluster.commands import run
from sunfleet_cluster.configs import CNI_PROGRAMS
from sunfleet_cluster.errors import ClusterError
from sunfleet_cluster.progress import Progress

# A program of each package, which tells whether the package is there.
_PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "ipset": "ipset",
    "iproute2": "ip",
    "conntrack": "conntrack",
    "openssl": "openssl",
    "procps": "sysctl",
    "util-linux": "nsenter",
    "buildah": "buildah",
    "mmdebstrap": "mmdebstrap",
    "prometheus": "prometheus",  # what the scaler's queries are tried against
    "gcc": "gcc",  # a package of the engine's environment is compiled from C
    "python3-dev": "x86_64-linux-gnu-python3-config",
}
_SERVICES = {"containerd": "containerd.service", "prometheus": "prometheus.service"}
_SYSTEMD = Path("/run/systemd/system")  # there where systemd runs
_CNI_PACKAGE = "containernetworking-plugins"


def missing() -> list[str]:
    """Debian packages that the embedded cluster needs and that are not installed."""
    lacking = [package for package, program in _PACKAGES.items() if shutil.which(program) is None]
    return lacking if (CNI_PROGRAMS / "bridge").exists() else [*lacking, _CNI_PACKAGE]


def install_command(lacking: Sequence[str]) -> list[str]:
    """The command that installs packages and starts none of their services, which Debian would do: ours are started by
    us, with our own configuration and folders. It waits for another apt-get.
    """
    environment = ["env", "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1", "SYSTEMD_OFFLINE=1"]
    options = ["-yq", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=600"]
    return [*environment, "apt-get", "install", *options, *lacking]


def ensure(progress: Progress) -> None:
    """Install what is missing with apt-get; ClusterError where there is no apt-get."""
    lacking = missing()
    if not lacking:
        return
    if shutil.which("apt-get") is None:
        raise ClusterError(
            f"missing: {', '.join(lacking)}; this is no Debian or Ubuntu, so install the like of them by hand"
        )
    with progress.step(f"apt-get install {' '.join(lacking)}"):
        run("apt-get", "update", "-q", timeout=600.0)
        run(*install_command(lacking), timeout=1800.0)
        if _SYSTEMD.is_dir() and (units := [_SERVICES[package] for package in lacking if package in _SERVICES]):
            run("systemctl", "disable", "--quiet", *units)  # or they would start with the next boot
    if still := missing():
        raise ClusterError(
            f"apt-get installed them, but these are still missing: {', '.join(still)} "
            f"(looked for {CNI_PROGRAMS / 'bridge'} and for programs on PATH)"
        )
