"""Programs that build images: docker where an engine answers, else buildah.

Both get the same Dockerfiles, arguments and secrets.
"""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from sunfleet_cluster.commands import run, succeeds
from sunfleet_cluster.errors import ClusterError

_LOG_LINES_SHOWN = 40
# What a base made from a root file system needs besides its files.
_BASE_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class BuildRequest:
    """One build. `dockerfile` is relative to `context`; `secrets` are files by id; output goes to `log`."""

    dockerfile: Path
    context: Path
    ref: str
    log: Path
    args: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Path] = field(default_factory=dict)


class Builder(Protocol):
    """A local image store and the means to fill it."""

    name: str
    # Whether this builder asks a registry for the Dockerfiles' default base image.
    pulls: bool

    def has(self, ref: str) -> bool:
        """Whether the store holds `ref`."""

    def import_rootfs(self, archive: Path, ref: str) -> None:
        """Make `ref` of the root file system in the tar `archive`."""

    def build(self, request: BuildRequest) -> None:
        """Build `request.ref`; ClusterError with the end of the log when it fails."""

    def remove(self, ref: str) -> None:
        """Take `ref` out of the store."""

    def save(self, ref: str, archive: Path) -> None:
        """Write `ref` to the tar `archive`, layers uncompressed: it is read once, right away."""


class Buildah:
    """buildah as root, without a daemon: `chroot` isolation needs no privileges that containers may lack."""

    name = "buildah"
    pulls = False

    def has(self, ref: str) -> bool:
        return succeeds("buildah", "inspect", "--type", "image", "--format", "{{.FromImageID}}", ref)

    def import_rootfs(self, archive: Path, ref: str) -> None:
        # A name by the archive's place: what a killed run left is found, and another folder's run is left alone.
        name = f"sunfleet-base-{hashlib.sha256(os.fsencode(archive)).hexdigest()[:8]}"
        succeeds("buildah", "rm", name)
        container = run("buildah", "from", "--name", name, "scratch").strip()
        try:
            run("buildah", "add", "--quiet", container, str(archive), "/")
            run("buildah", "config", "--env", _BASE_PATH, "--cmd", json.dumps(["python3"]), container)
            run("buildah", "commit", "--quiet", container, ref)
        finally:
            run("buildah", "rm", container)

    def build(self, request: BuildRequest) -> None:
        _logged(self.build_command(request), request.log)

    def build_command(self, request: BuildRequest) -> list[str]:
        """The command line of a build."""
        fixed = ["--isolation", "chroot", "--network", "host", "--layers", "--pull-never", "--format", "oci"]
        return ["buildah", "bud", *fixed, *_build_options(request)]

    def remove(self, ref: str) -> None:
        run("buildah", "rmi", ref)

    def save(self, ref: str, archive: Path) -> None:
        run("buildah", "push", "--quiet", "--disable-compression", ref, f"oci-archive:{archive}:{ref}", timeout=None)


class Docker:
    """A Docker engine with BuildKit."""

    name = "docker"
    pulls = True

    def has(self, ref: str) -> bool:
        return succeeds("docker", "image", "inspect", ref)

    def import_rootfs(self, archive: Path, ref: str) -> None:
        changes = ["--change", f"ENV {_BASE_PATH}", "--change", 'CMD ["python3"]']
        run("docker", "import", *changes, str(archive), ref)

    def build(self, request: BuildRequest) -> None:
        _logged(self.build_command(request), request.log)

    def build_command(self, request: BuildRequest) -> list[str]:
        """The command line of a build."""
        return ["docker", "build", "--network", "host", "--progress", "plain", *_build_options(request)]

    def remove(self, ref: str) -> None:
        run("docker", "image", "rm", ref)

    def save(self, ref: str, archive: Path) -> None:
        run("docker", "save", "--output", str(archive), ref, timeout=None)


def pick_builder() -> Builder:
    """docker where an engine answers, else buildah; ClusterError when there is neither."""
    if shutil.which("docker") and succeeds("docker", "version", "--format", "{{.Server.Version}}"):
        return Docker()
    if shutil.which("buildah"):
        return Buildah()
    raise ClusterError(
        "no program to build images with: install buildah (apt-get install buildah) or start a Docker engine"
    )


def _build_options(request: BuildRequest) -> list[str]:
    """Options that docker and buildah share."""
    options = ["--file", str(request.context / request.dockerfile), "--tag", request.ref]
    for name, value in sorted(request.args.items()):
        options += ["--build-arg", f"{name}={value}"]
    for name, path in sorted(request.secrets.items()):
        options += ["--secret", f"id={name},src={path}"]
    return [*options, str(request.context)]


def _logged(command: Sequence[str], log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False).returncode
    if code:
        end = "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:])
        raise ClusterError(f"`{command[0]} {command[1]}` failed (exit {code}); the end of {log}:\n{end}")
