"""What the operator asked of the API server, from the API server's own audit log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

OPERATOR = "system:serviceaccount:sunfleet-system:sunfleet-operator"
POLICY = f"""apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  users: ["{OPERATOR}"]
- level: None
"""
_MUTATING = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_WATCH = "watch"


@dataclass
class Requests:
    """Requests by (verb, resource), watches left out: they end whenever their time is up."""

    by_kind: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        return self.by_kind.total()

    @property
    def mutating(self) -> Counter[tuple[str, str]]:
        """Writes, except the renewal of the Lease."""
        kept = {kind: n for kind, n in self.by_kind.items() if kind[0] in _MUTATING and kind[1] != "leases"}
        return Counter(kept)


class AuditLog:
    """Reads on from where it stopped."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0

    def since_last(self) -> Requests:
        """The requests that were answered since the last call."""
        with self._path.open("rb") as log:
            log.seek(self._offset)
            data = log.read()
        whole = data.rpartition(b"\n")[0]
        self._offset += len(whole) + bool(whole)
        return count(whole.splitlines())


def count(lines: Iterable[bytes]) -> Requests:
    """Pure."""
    found = Requests()
    for line in lines:
        event = json.loads(line)
        if event["verb"] == _WATCH:
            continue
        target = event.get("objectRef") or {}
        resource = "/".join(part for part in (target.get("resource", "-"), target.get("subresource", "")) if part)
        found.by_kind[event["verb"], resource] += 1
    return found
