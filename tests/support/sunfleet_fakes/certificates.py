"""Certificates of tests, made by openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path


def certificate(folder: Path, name: str, host: str) -> tuple[Path, Path]:
    """A certificate that vouches for itself, and its key: ``folder/NAME.crt`` and ``NAME.key``. ``host``: such as
    ``DNS:sunfleet-engine``."""
    files = folder / f"{name}.crt", folder / f"{name}.key"
    command = [
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-subj", f"/CN={name}", "-addext", f"subjectAltName={host}", "-out", str(files[0]), "-keyout", str(files[1]),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    return files
