"""The base image where no registry is asked: Debian bookworm with Python 3.11, made once from Debian's packages."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

from sunfleet_cluster.errors import ClusterError
from sunfleet_cluster.images.builders import Builder
from sunfleet_cluster.images.catalog import REPOSITORY
from sunfleet_cluster.progress import Progress

SUITE = "bookworm"
# usr-is-merged saves the 45 MB of perl that the package usrmerge would bring. libnuma and libgomp are for the engine.
PACKAGES = ("usr-is-merged", "python3", "python3-venv", "ca-certificates", "libnuma1", "libgomp1")
_OPTIONS = (
    "--variant=minbase",
    "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/i18n/*",
    '--aptopt=Acquire::Languages "none"',
)


def base_ref() -> str:
    """Name of the base image; its tag identifies the recipe."""
    recipe = json.dumps([SUITE, PACKAGES, _OPTIONS])
    return f"{REPOSITORY}/base:{hashlib.sha256(recipe.encode()).hexdigest()[:16]}"


def rootfs_command(archive: Path, mirror: str = "") -> list[str]:
    """The command that writes the root file system to `archive`, from `mirror` or Debian's own servers."""
    return [
        "mmdebstrap",
        *_OPTIONS,
        f"--include={','.join(PACKAGES)}",
        SUITE,
        str(archive),
        *([mirror] if mirror else []),
    ]


def ensure_base(builder: Builder, folder: Path, mirror: str, progress: Progress) -> str:
    """The base image's name, after making it where `builder` lacks it (half a minute, 130 MB in `folder` meanwhile)."""
    ref = base_ref()
    if builder.has(ref):
        return ref
    if not shutil.which("mmdebstrap"):
        raise ClusterError("the base image is made by mmdebstrap, which is missing: apt-get install mmdebstrap")
    folder.mkdir(parents=True, exist_ok=True)
    with progress.step(f"base image from Debian {SUITE} packages") as step:
        step.outcome = ref
        _make_base(builder, ref, folder, mirror)
    return ref


def _make_base(builder: Builder, ref: str, folder: Path, mirror: str) -> None:
    archive, log = folder / "base.tar", folder / "base.log"
    archive.unlink(missing_ok=True)  # a new file: the program of a killed run may still write into the old one
    try:
        with log.open("wb") as out:
            code = subprocess.run(rootfs_command(archive, mirror), stdout=out, stderr=out, check=False).returncode
        if code:
            raise ClusterError(
                f"mmdebstrap failed (exit {code}), see {log}; SUNFLEET_DEBIAN_MIRROR names another mirror"
            )
        builder.import_rootfs(archive, ref)
    finally:
        archive.unlink(missing_ok=True)
