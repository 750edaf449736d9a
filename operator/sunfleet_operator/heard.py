"""What routers say of one object, and what they should say. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from sunfleet_api.routes import Routes, Taken, digest
from sunfleet_operator.references import model_name
from sunfleet_operator.types import MODEL, Json, Key, full_name, status_of

KNOWN: Final = "known"  # of a SharedDecoder

# Of one router. "old": of a version that does not say what it has; what it has is not judged. None: no answer.
Answer = Routes | Literal["old"] | None


@dataclass(frozen=True)
class Lookup:
    """Where routers are: pods in ``namespace`` with ``labels``."""

    namespace: str
    labels: Mapping[str, str]


@dataclass(frozen=True)
class Heard:
    """Of one SunModel or SharedDecoder. Without ``asked`` nobody knows what routers have, and ``problem`` may say why.

    ``said``: by the name of every Ready router that serves the object's namespace, the digest of a task's routes, or
    ``KNOWN`` of a decoder; empty where it knows neither, None where it does not answer. ``elsewhere``: Ready routers
    that serve other namespaces only. ``late``: what is wanted has been published for longer than routers ever need.
    """

    said: Mapping[str, str | None] = field(default_factory=dict)
    asked: bool = True
    problem: str = ""
    elsewhere: int = 0
    late: bool = False

    def behind(self, wanted: str) -> tuple[str, ...]:
        """Names of routers that answer, and act on something else."""
        return tuple(sorted(name for name, said in self.said.items() if said is not None and said != wanted))

    @property
    def silent(self) -> tuple[str, ...]:
        """Names of routers that do not answer."""
        return tuple(sorted(name for name, said in self.said.items() if said is None))

    def taken(self, wanted: str) -> bool:
        """Whether all have it, of whom there is one at least."""
        return bool(self.said) and all(said == wanted for said in self.said.values())


def said_of(key: Key, live: Json, routes: Routes) -> str:
    """What one router's answer says of an object."""
    if key.kind == MODEL:
        return routes.tasks.get(model_name(live), "")
    return KNOWN if full_name(live) in routes.decoders else ""


def wanted_of(key: Key, live: Json) -> str:
    """What routers should say of an object, as its live status has it."""
    return digest_of(status_of(live).get("traffic") or ()) if key.kind == MODEL else KNOWN


def digest_of(traffic: object) -> str:
    """Of ``status.traffic``."""
    entries: Sequence[Json] = traffic if isinstance(traffic, Sequence) else ()
    return digest(
        Taken(
            str(entry["revision"]),
            int(entry["weight"]),
            str(entry["decoder"]),
            str(entry["cacheSalt"]),
            str((entry.get("prefill") or {}).get("adapter") or ""),
        )
        for entry in entries
    )
