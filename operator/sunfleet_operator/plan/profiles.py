"""ServingProfiles: what an object is once its presets are laid under its own spec, and when an edit counts. Pure.

What was taken over is recorded. With ``rollout.profileUpdates: Manual`` the record stays in effect until the object's
own spec changes, so that an edit of a profile is seen before it rolls a hundred tasks; a change of ``replicas`` is no
such change, since scalers make it. A profile that is gone is missed only by objects that never took it over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from sunfleet_api import names
from sunfleet_api.conditions import ConditionType, Reason
from sunfleet_api.fingerprint import revision_hash
from sunfleet_api.serving_profile import ServingProfile
from sunfleet_operator import records
from sunfleet_operator.build import labels
from sunfleet_operator.build.merge import merge
from sunfleet_operator.build.record import record
from sunfleet_operator.observed import Children, FoundProfile
from sunfleet_operator.plan.actions import Apply, Delete, Write
from sunfleet_operator.plan.common import unreadable
from sunfleet_operator.plan.conditions import Verdict
from sunfleet_operator.plan.weights import next_number
from sunfleet_operator.records import ProfilesRecord
from sunfleet_operator.types import DECODER, Json, Key, Ref, full_name, metadata, spec_of

_FIELDS_OF_DECODER: Final = ("engine", "template", "rollout", "autoscaling")
_FIELDS_OF_MODEL: Final = ("template", "rollout", "autoscaling", "traffic", "verification")
# Scalers write the first; neither says what pods are.
_NOT_ASKED: Final = frozenset({"replicas", "paused"})
_OUTDATED: Final = ConditionType.PROFILES_OUTDATED


@dataclass(frozen=True)
class Effective:
    """An object with its presets under its spec. ``missing``: why it cannot be known; then ``live`` is as it was."""

    live: Json
    used: bool = False
    writes: tuple[Write, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    missing: str = ""

    def obstacle(self, refs: ConditionType) -> Verdict | None:
        """Why this is nothing to act on; ``refs`` is the condition that speaks of the object's references."""
        if self.missing:
            return Verdict(refs, "False", Reason.PROFILE_NOT_FOUND, self.missing)
        wrong = fault(self.live) if self.used else ""
        return Verdict(ConditionType.ACCEPTED, "False", Reason.INVALID_SPEC, wrong) if wrong else None


def effective(live: Json, key: Key, children: Children, found: Sequence[FoundProfile]) -> Effective:
    """What the object is with its profiles as they are, or as they were when it took them over."""
    known = records.newest(children.records, ProfilesRecord)
    if not found:
        return Effective(live, writes=_forget(children, keep=None))
    asked = revision_hash("asked", {name: value for name, value in spec_of(live).items() if name not in _NOT_ASKED})
    last = known[0] if known else None
    preset = _preset(key.kind, found)
    automatic = (spec_of(live).get("rollout") or {}).get("profileUpdates") == "Automatic"
    if last is not None and last.asked == asked and (preset is None or not automatic):
        outdated = _outdated(key, found, changed=preset != last.preset)
        return Effective(_over(live, last.preset), used=True, verdicts=outdated)
    if preset is None:
        return Effective(live, missing=_absent(key, found))
    wanted = ProfilesRecord(asked=asked, preset=preset)
    writes = () if wanted == last else _remember(live, key, children, wanted)
    return Effective(_over(live, preset), used=True, writes=writes)


def fault(live: Json) -> str:
    """What the API server would have refused had all of it stood in one manifest; empty when nothing is wrong."""
    spec = spec_of(live)
    scaling = spec.get("autoscaling") or {}
    if scaling.get("minReplicas", 1) > scaling.get("maxReplicas", 10_000):
        return "with its profiles autoscaling.minReplicas is greater than maxReplicas"
    rollout = spec.get("rollout") or {}
    pod = (spec.get("template") or {}).get("spec") or {}
    needed = names.PRE_STOP_SECONDS + rollout.get("drainTimeoutSeconds", 300)
    if pod.get("terminationGracePeriodSeconds", needed) < needed:
        return f"with its profiles terminationGracePeriodSeconds is less than preStop and drain take: {needed}"
    if {str(rollout.get("maxSurge", 1)), str(rollout.get("maxUnavailable", 0))} <= {"0", "0%"}:
        return "with its profiles rollout.maxSurge and maxUnavailable are both 0"
    return ""


def _preset(kind: str, found: Sequence[FoundProfile]) -> dict[str, Any] | None:
    """What the profiles say together of this kind, a later one over an earlier; None when one is missing."""
    fields = _FIELDS_OF_DECODER if kind == DECODER else _FIELDS_OF_MODEL
    preset: dict[str, Any] = {}
    for each in found:
        if each.live is None:
            return None
        preset = _merged(preset, {name: value for name, value in spec_of(each.live).items() if name in fields})
    return preset


def _over(live: Json, preset: Mapping[str, Any]) -> Json:
    return {**live, "spec": _merged(preset, spec_of(live))}


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Maps by key, pod templates strategically, engine arguments by name, other lists as a whole."""
    result = merge(under, over)
    below, above = ((side.get("engine") or {}).get("extraArgs") or () for side in (under, over))
    if below and above:
        by_name = {each["name"]: each for each in (*below, *above)}
        result["engine"] = {**result["engine"], "extraArgs": list(by_name.values())}
    return result


def _absent(key: Key, found: Sequence[FoundProfile]) -> str:
    missing = ", ".join(each.name for each in found if each.live is None)
    return f"there is no ServingProfile {missing} in namespace {key.namespace} or the operator's (yet)"


def _outdated(key: Key, found: Sequence[FoundProfile], *, changed: bool) -> tuple[Verdict, ...]:
    if any(each.live is None for each in found):
        text = f"{_absent(key, found)}; what it said when it was taken over stays in effect"
        return (Verdict(_OUTDATED, "True", Reason.PROFILE_NOT_FOUND, text),)
    if not changed:
        return ()
    which = ", ".join(full_name(each.live) for each in found if each.live is not None)
    text = (
        f"ServingProfiles ({which}) have changed: change this object's spec to take them over, "
        "or set rollout.profileUpdates to Automatic"
    )
    return (Verdict(_OUTDATED, "True", Reason.PROFILE_CHANGED, text),)


def _remember(live: Json, key: Key, children: Children, wanted: ProfilesRecord) -> tuple[Write, ...]:
    name = labels.profiles_record_name(key, revision_hash("preset", wanted.data()))
    written = record(live, key, name, wanted.data(), number=next_number(children))
    return (Apply(written), *_forget(children, keep=name))


def _forget(children: Children, *, keep: str | None) -> tuple[Write, ...]:
    old = (item for item in children.records if isinstance(records.parse(item), ProfilesRecord))
    return tuple(Delete(Ref.of("ControllerRevision", item)) for item in old if metadata(item)["name"] != keep)


def readable(live: Json) -> Verdict:
    """Whether a profile itself can be read."""
    try:
        ServingProfile.parse(live)
    except ValidationError as error:
        return unreadable(live, error, ServingProfile)
    return Verdict(ConditionType.ACCEPTED, "True", Reason.ACCEPTED)
