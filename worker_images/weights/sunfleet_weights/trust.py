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

    Raises :class:`.errors.InvalidBundle`.
    """
    added = _certificates(extra, f"caBundle, {extra.name}", "check the ConfigMap and its key")
    if usual:
        base = _certificates(Path(usual), f"SSL_CERT_FILE, {usual}", "name a file of PEM certificates")
    else:
        base = next((path.read_bytes() for path in _SYSTEM if path.is_file()), b"")
    bundle = scratch / "ca-bundle.pem"
    bundle.write_bytes(base + b"\n" + added)
    os.environ["SSL_CERT_FILE"] = str(bundle)
    return bundle


def _certificates(path: Path, what: str, mend: str) -> bytes:
    """The file's content, once OpenSSL has taken it."""
    try:
        content = path.read_bytes()
        if _BEGIN not in content:
            raise InvalidBundle(f"{what}: it holds no PEM certificate: {mend}")
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except OSError as error:  # of the file, or of OpenSSL: a damaged certificate
        raise InvalidBundle(f"{what}: {error.strerror or error}: {mend}") from error
    return content
