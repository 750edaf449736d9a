"""What the *restricted* Pod Security Standard asks of every pod that the operator makes, and the key of its engines."""

from __future__ import annotations

from typing import Any, Final

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
