"""What the *restricted* Pod Security Standard asks of every pod that the operator makes."""

from __future__ import annotations

from typing import Any, Final

# The user id is the image's own (numeric there); naming one here would break platforms that assign ids per namespace.
POD_SECURITY: Final[dict[str, Any]] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
CONTAINER_SECURITY: Final[dict[str, Any]] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
