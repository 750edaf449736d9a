"""The programs of a run: ours are built, peers are fetched into folders of their own; nothing is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

GO: Final = Path(__file__).resolve().parents[1] / "go"
ROOT: Final = Path(__file__).resolve().parents[3]
# The engine's and the router's own files stay where `make` keeps everything that is built.
VLLM_ROUTER: Final = "vllm-router==0.1.17"
_HAPROXY: Final = ("haproxy", "liblua5.3-0", "libopentracing1", "libopentracing-c-wrapper0")


class MissingProgramError(Exception):
    """Something cannot be built or fetched; the text says what, and what to do."""


@dataclass(frozen=True)
class Programs:
    """Where things lie. ``state``: the folder of everything that is built or downloaded."""

    state: Path

    @property
    def folder(self) -> Path:
        return self.state / "bench"

    def build(self) -> dict[str, Path]:
        """The engine and the load generator; Go's own cache makes a second build free."""
        if shutil.which("go") is None:
            raise MissingProgramError("go is missing: install Go 1.24 or newer (the cluster's programs need it too)")
        target = self.folder / "bin"
        target.mkdir(parents=True, exist_ok=True)
        _run(["go", "build", "-trimpath", "-buildvcs=false", "-o", str(target), "./engine", "./load"], GO)
        return {name: target / name for name in ("engine", "load")}

    def haproxy(self) -> tuple[Path, dict[str, str]]:
        """The program and its variables: the machine's own, or Debian's package unpacked."""
        if found := shutil.which("haproxy"):
            return Path(found), {}
        root = self.folder / "haproxy"
        program = root / "usr/sbin/haproxy"
        if not program.exists():
            if shutil.which("apt-get") is None:
                raise MissingProgramError("haproxy is missing, and there is no apt-get to fetch it with: install it")
            packages = self.folder / "packages"
            packages.mkdir(parents=True, exist_ok=True)
            _run(["apt-get", "download", "-q", *_HAPROXY], packages)
            for package in packages.glob("*.deb"):
                _run(["dpkg", "-x", str(package), str(root)], packages)
        return program, {"LD_LIBRARY_PATH": str(root / "usr/lib/x86_64-linux-gnu")}

    def vllm_router(self) -> Path:
        """Its program, in an environment of its own."""
        venv = self.folder / VLLM_ROUTER
        program = venv / "bin/vllm-router"
        if not program.exists():
            uv = shutil.which("uv") or str(self.state / "uv/bin/uv")
            _run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(venv)], ROOT)
            _run([uv, "pip", "install", "--quiet", "--python", str(venv / "bin/python"), VLLM_ROUTER], ROOT)
        return program


def router_variables() -> dict[str, str]:
    """What our router's process needs; ``SUNFLEET_ROUTER_*`` of the caller go through."""
    return {"PYTHONPATH": os.pathsep.join((str(ROOT / "router"), str(ROOT / "crds")))}


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingProgramError(f"`{' '.join(command[:3])} ...` failed:\n{done.stderr[-2000:]}")
