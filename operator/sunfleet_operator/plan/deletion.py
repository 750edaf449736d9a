"""A decoder that tasks use cannot vanish: when our finalizer is set, when it is removed, and what is said meanwhile.
Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sunfleet_api import names
from sunfleet_api.conditions import ConditionType, Reason
from sunfleet_operator.observed import ObservedDecoder
from sunfleet_operator.plan.conditions import Verdict
from sunfleet_operator.types import is_terminating, metadata

_SHOWN = 5


@dataclass(frozen=True)
class Fate:
    """``release``: let it go now. ``finalizer``: whether ours must be there, ``None`` when that is so already."""

    release: bool
    finalizer: bool | None
    verdicts: tuple[Verdict, ...] = ()


def decide(observed: ObservedDecoder) -> Fate:
    """In use means: a SunModel of any namespace that may attach, itself not being deleted, refers to it or routes to
    it."""
    has = names.FINALIZER in (metadata(observed.live).get("finalizers") or ())
    users = [user.name for user in observed.users if user.holds]
    if not is_terminating(observed.live):
        wanted = bool(users)
        return Fate(release=False, finalizer=None if wanted == has else wanted)
    forced = (metadata(observed.live).get("annotations") or {}).get(names.ANNOTATION_FORCE_DELETE) == "true"
    if not users or forced or observed.namespace_terminating:
        return Fate(release=True, finalizer=False if has else None)
    message = (
        f"in use by {listed(users)}: delete these SunModels or give them another decoderRef; "
        f"or, to let them fail, set the annotation {names.ANNOTATION_FORCE_DELETE}=true"
    )
    blocked = Verdict(ConditionType.DELETION_BLOCKED, "True", Reason.IN_USE, message)
    return Fate(release=False, finalizer=None, verdicts=(blocked,))


def listed(items: Sequence[str]) -> str:
    """The first few of a list that may be long."""
    shown = ", ".join(sorted(items)[:_SHOWN])
    return shown if len(items) <= _SHOWN else f"{shown} and {len(items) - _SHOWN} more"
