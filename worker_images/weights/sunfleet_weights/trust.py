"""Certificates of a company's own authority, trusted besides the usual ones, by every client alike."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Final

from sunfleet_weights.errors import InvalidBundle

# Where distributions keep the usual ones, unless Python's own OpenSSL knows.
_SYSTEM: Final = (
    Path(ssl.get_default_verify_paths().openssl_cafile),
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
)
_BEGIN: Final = b"-----BEGIN CERTIFICATE-----"


def trust(extra: Path, usual: str, scratch: Path) -> Path:
    """Write usual and extra certificates into one file in ``scratch`` and make it ``SSL_CERT_FILE``, which OpenSSL,
    the hub's and the stores' clients read. ``usual``: the file of the usual ones, empty for the system's.
    """
    try:
        added = extra.read_bytes()
    except OSError as error:
        raise InvalidBundle(f"caBundle: {error}: check the ConfigMap and its key") from error
    if _BEGIN not in added:
        raise InvalidBundle(f"caBundle: {extra.name} holds no PEM certificate")
    known = [Path(usual)] if usual else _SYSTEM
    base = next((path.read_bytes() for path in known if path.is_file()), b"")
    bundle = scratch / "ca-bundle.pem"
    bundle.write_bytes(base + b"\n" + added)
    os.environ["SSL_CERT_FILE"] = str(bundle)
    return bundle
