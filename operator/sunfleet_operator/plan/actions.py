"""A plan: every write of one reconcile, as data, in the order in which it must happen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from sunfleet_api.pooling import Wanted
from sunfleet_operator.observed import Fault
from sunfleet_operator.types import Json, Key, Manifest, Ref


@dataclass(frozen=True)
class Apply:
    """Server-side apply of one child by the operator's field manager."""

    manifest: Manifest


@dataclass(frozen=True)
class Scale:
    """Server-side apply of a Deployment's replica count by the scale field manager."""

    manifest: Manifest


@dataclass(frozen=True)
class Mark:
    """Server-side apply of a pod's deletion cost by the scale field manager: the lowest goes first."""

    manifest: Manifest


@dataclass(frozen=True)
class Announce:
    """Server-side apply of a pod's loaded adapters by a field manager of their own: routers read it."""

    manifest: Manifest


@dataclass(frozen=True)
class Load:
    """Tell a pod of a PrefillPool all adapters that it shall hold. Best effort: it is looked at again soon."""

    pod: str
    address: str  # IP
    wanted: Wanted


@dataclass(frozen=True)
class Delete:
    """Deletion of one child, dependents in the background. ``grace_seconds`` of ``None`` is the object's own."""

    ref: Ref
    grace_seconds: int | None = None


Write: TypeAlias = Apply | Scale | Mark | Announce | Load | Delete


@dataclass(frozen=True)
class Event:
    """A Kubernetes Event on the object; ``kind`` is Normal or Warning."""

    kind: str
    reason: str
    message: str


@dataclass(frozen=True)
class Plan:
    """``before``, then the status, then ``after``, then the finalizer and events.

    A pod that loses traffic is deleted in ``after``: routers must have been told first. ``finalizer`` is whether ours
    must be there (``None``: leave it), and is set before everything else but removed after everything else.
    ``requeue_after`` is in seconds.
    """

    before: tuple[Write, ...] = ()
    status: Manifest | None = None
    after: tuple[Write, ...] = ()
    finalizer: bool | None = None
    events: tuple[Event, ...] = ()
    requeue_after: float | None = None
    # Of a PrefillPool: why tasks' adapters are nowhere loaded, by task and adapter.
    faults: Mapping[Key, Mapping[str, Fault]] | None = None
    effective: Json | None = None  # the object with its profiles under its spec, where it has any
    # For the metrics: results of golden prompts that it records, and how a canary ends.
    checks: tuple[str, ...] = ()
    canary: str = ""

    @property
    def empty(self) -> bool:
        """Nothing to write: the object and the cluster agree."""
        return not (self.before or self.after or self.events) and self.status is None and self.finalizer is None
