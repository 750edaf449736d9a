"""What a router says of the routes that it acts on: ``GET`` :data:`PATH` on its admin port.

The operator compares it with ``status.traffic`` (condition ``RouterSynced``). Both sides put a task's routes into one
:func:`digest`, so that hundreds of tasks are one small answer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

PATH: Final = "/sunfleet/routes"
_LENGTH: Final = 16  # hex digits: told apart are a task's own routes of yesterday and today, nobody forges them


class Taken(NamedTuple):
    """One entry of ``status.traffic``, as far as it decides about requests."""

    revision: str
    weight: int
    decoder: str
    cache_salt: str  # of this object, module and decoder alone
    adapter: str = ""  # of a PrefillPool


class Routes(BaseModel):
    """Everything that one router acts on now."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    namespaces: tuple[str, ...] = ()
    """Those whose tasks it serves; empty: all."""
    tasks: Mapping[str, str] = Field(default_factory=dict)
    """By model name, the digest of the task's routes."""
    decoders: frozenset[str] = frozenset()
    """namespace/name of those that it knows."""

    def serves(self, namespace: str) -> bool:
        return not self.namespaces or namespace in self.namespaces


def digest(routes: Iterable[Taken]) -> str:
    """Equal for equal routes in any order; empty without any, like that of a task which a router does not know."""
    found = sorted(routes)
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:_LENGTH] if found else ""
