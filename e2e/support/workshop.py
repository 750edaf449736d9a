"""Where a tuning run reads its rows and writes its module: one folder, seen from this machine and from pods."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.kubectl import Kubectl

NAMESPACE: Final = "tuning"
CLAIM: Final = "workshop"


@dataclass(frozen=True)
class Workshop:
    """``folder`` on this machine is the claim ``workshop`` in the cluster."""

    kubectl: Kubectl
    folder: Path
    namespace: str = NAMESPACE

    def uri(self, name: str) -> str:
        """A file or folder of it, as specs name it."""
        return f"pvc://{CLAIM}/{name}"
