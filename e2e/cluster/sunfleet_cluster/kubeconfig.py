"""Kubeconfig files with everything embedded, so that they can be copied."""

from base64 import b64encode
from pathlib import Path

import yaml


def render(server: str, pki: Path, identity: str, cluster: str = "sunfleet") -> str:
    """Kubeconfig (YAML) of `identity`, whose certificate and key lie in `pki`, for the API server at `server`."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": cluster, "cluster": {"server": server, "certificate-authority-data": _embedded(pki / "ca.crt")}}
        ],
        "users": [
            {
                "name": identity,
                "user": {
                    "client-certificate-data": _embedded(pki / f"{identity}.crt"),
                    "client-key-data": _embedded(pki / f"{identity}.key"),
                },
            }
        ],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": identity}}],
        "current-context": cluster,
    }
    return yaml.safe_dump(document, sort_keys=False)


def _embedded(path: Path) -> str:
    return b64encode(path.read_bytes()).decode()
