"""What the *restricted* Pod Security Standard asks of every pod that the operator makes; key and TLS of its engines."""

from __future__ import annotations

from typing import Any, Final

from sunfleet_api import names

# The user id is the image's own (numeric there); naming one here would break platforms that assign ids per namespace.
POD_SECURITY: Final[dict[str, Any]] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
CONTAINER_SECURITY: Final[dict[str, Any]] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def engine_key(variable: str, secret: str) -> list[dict[str, Any]]:
    """The key that engines ask for, as a variable; nothing when there is no such Secret."""
    source = {"secretKeyRef": {"name": secret, "key": "key"}}
    return [{"name": variable, "valueFrom": source}] if secret else []


TLS_VOLUME: Final = "engine-tls"


def tls_volume(secret: str, *, key: bool) -> list[dict[str, Any]]:
    """The Secret with which engines speak TLS; without ``key`` only the authority that signed it."""
    if not secret:
        return []
    only: dict[str, Any] = {} if key else {"items": [{"key": "ca.crt", "path": "ca.crt"}]}
    return [{"name": TLS_VOLUME, "secret": {"secretName": secret, **only}}]


def tls_mount(secret: str) -> list[dict[str, Any]]:
    return [{"name": TLS_VOLUME, "mountPath": names.TLS_PATH, "readOnly": True}] if secret else []
