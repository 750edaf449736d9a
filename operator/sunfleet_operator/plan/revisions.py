"""The common part of both plans: Deployments of an owner's revisions, their roll-out, their records' history. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sunfleet_api import names
from sunfleet_api.conditions import ConditionType, Reason
from sunfleet_api.scaling import Rollout
from sunfleet_operator import drift, records
from sunfleet_operator.build import labels
from sunfleet_operator.build.deployment import deployment, scale
from sunfleet_operator.build.labels import SPEC_HASH
from sunfleet_operator.build.network import Fellows, Visitors, network_policy
from sunfleet_operator.build.pool import disruption_budget, service
from sunfleet_operator.build.record import record
from sunfleet_operator.observed import Children
from sunfleet_operator.plan import pods, rollout, victims
from sunfleet_operator.plan.actions import Apply, Delete, Mark, Scale, Write
from sunfleet_operator.plan.conditions import Verdict
from sunfleet_operator.plan.replicas import Wanted
from sunfleet_operator.plan.weights import next_number
from sunfleet_operator.records import (
    CanaryRecord,
    DecoderRevision,
    ModelRevision,
    ProfilesRecord,
    VerificationRecord,
    WeightsRecord,
)
from sunfleet_operator.types import (
    Json,
    Key,
    Manifest,
    Ref,
    controller_of,
    full_name,
    is_terminating,
    labels_of,
    metadata,
    name_of,
    revision_of,
    runs_engine,
    spec_of,
    status_of,
)

_LAST_CHECKS = 2
_UNSAID = 1  # replicas of a Deployment whose manifest says none


@dataclass(frozen=True)
class Fleet:
    """All revisions of one owner that have a Deployment, and the one that is wanted."""

    owner: Json
    key: Key
    children: Children
    target: DecoderRevision | ModelRevision
    current: str  # the revision that serves by itself; empty when none ever did
    usable: Mapping[str, int]  # pods per revision that can serve
    work: Mapping[str, float] = field(default_factory=dict)  # requests by pod name, where they are known
    held: bool = False  # the target may not take over before it has answered golden prompts
    aside: frozenset[str] = frozenset()  # revisions that stand beside all others, whatever these do

    def deployment(self, revision: str) -> Json | None:
        return next((d for d in self.children.deployments if revision_of(d) == revision), None)

    def pods(self, revision: str) -> list[Json]:
        return [pod for pod in self.children.pods if runs_engine(pod) and revision_of(pod) == revision]

    def side(self, revision: str) -> rollout.Side:
        live = self.deployment(revision)
        wanted = 0 if live is None else int(spec_of(live).get("replicas", 1))
        return rollout.Side(revision, wanted, present=len(self.pods(revision)), usable=self.usable.get(revision, 0))

    def others(self) -> list[rollout.Side]:
        """Every live revision but the target: half-finished ones first, the current one goes last."""
        found = {revision_of(d) for d in self.children.deployments}
        # Pods of a Deployment that is gone already may still hold GPUs.
        found |= {revision_of(p) for p in self.children.pods if runs_engine(p)}
        found -= {self.target.revision, *self.aside}
        return [self.side(revision) for revision in sorted(found, key=lambda r: (r == self.current, r))]


def available(live: Json) -> int:
    """Available pods of a Deployment that it still wants. Its template never changes, so an old status is merely
    late."""
    return min(int(status_of(live).get("availableReplicas") or 0), int(spec_of(live).get("replicas", 1)))


def formats(decode_deployments: Iterable[Json]) -> frozenset[str]:
    """KV fingerprint labels of decode pods that are available now."""
    return frozenset(
        live["spec"]["template"]["metadata"]["labels"].get(names.LABEL_KV_FINGERPRINT, "")
        for live in decode_deployments
        if available(live)
    )


@dataclass(frozen=True)
class Rolled:
    """Writes of a roll-out step and whether it is the last one."""

    before: tuple[Write, ...]
    after: tuple[Write, ...]
    done: bool
    replicas: Mapping[str, int]


def stand(fleet: Fleet, replicas: int, spec: Rollout) -> list[Write]:
    """So many pods of the target revision, whatever else there is."""
    return [*record_writes(fleet), *_target_writes(fleet, replicas, spec)]


def roll(fleet: Fleet, wanted: Wanted, spec: Rollout, *, uris: Collection[str], keep: int = 0) -> Rolled:
    """One step from what is there to the wanted pods of the target revision. Records of ``uris`` stay."""
    want, target, others = wanted.count, fleet.side(fleet.target.revision), fleet.others()
    counts = rollout.step(want, limits(spec, wanted), target, others, keep=keep)
    before = [*record_writes(fleet), *_target_writes(fleet, counts[fleet.target.revision], spec)]
    done = _done(fleet, want, target, others)
    # Old revisions shrink or go only after routers have been told.
    after: list[Write] = []
    for live in fleet.children.deployments:
        if revision_of(live) in {fleet.target.revision, *fleet.aside}:
            continue
        after += [Delete(Ref.of("Deployment", live))] if done else _scale_writes(fleet, live, counts[revision_of(live)])
    if done:
        after += trim(fleet, spec.revision_history_limit, uris)
    return Rolled(tuple(before), tuple(after), done, counts)


def _done(fleet: Fleet, want: int, target: rollout.Side, others: Sequence[rollout.Side]) -> bool:
    """Once a revision serves alone its roll-out is over, whatever becomes of its pods later."""
    if fleet.held or fleet.deployment(target.revision) is None:
        return False
    alone = fleet.current == target.revision and not any(other.replicas for other in others)
    return alone or rollout.finished(want, target, others)


def record_writes(fleet: Fleet) -> list[Write]:
    """The target's record, where there is none yet."""
    name = labels.child_name(fleet.key, fleet.target.revision)
    if any(item["metadata"]["name"] == name for item in fleet.children.records):
        return []
    number = next_number(fleet.children)
    return [Apply(record(fleet.owner, fleet.key, name, fleet.target.data(), number=number))]


def _target_writes(fleet: Fleet, replicas: int, spec: Rollout) -> list[Write]:
    revision = fleet.target.revision
    live = fleet.deployment(revision)
    made = deployment(
        fleet.owner,
        fleet.key,
        revision,
        fleet.target.template,
        progress_deadline_seconds=spec.progress_deadline_seconds,
        create_with=replicas if live is None and replicas != _UNSAID else None,
    )
    if live is not None:
        return [*_scale_writes(fleet, live, replicas), *changed(made, live)]
    # What nobody says nobody owns, so nobody has to take it over: another write to every new Deployment, in the midst
    # of its controller's own.
    said = [] if replicas == _UNSAID else [Scale(scale(fleet.key, revision, replicas))]
    return [Apply(made), *said]


def _scale_writes(fleet: Fleet, live: Json, replicas: int) -> list[Write]:
    """Also when the number is right but the operator's manager says it, which happens where a process ended between
    two writes: a field that only this one owns would fall back to 1 as soon as it stops naming it."""
    scaled, said = (
        drift.owns(live, manager, "spec", "replicas") for manager in (names.SCALE_FIELD_MANAGER, names.FIELD_MANAGER)
    )
    if spec_of(live).get("replicas") == replicas and (scaled or not said):
        return []
    return [*_marks(fleet, live, replicas), Scale(scale(fleet.key, revision_of(live), replicas))]


def _marks(fleet: Fleet, live: Json, replicas: int) -> list[Write]:
    """Before a Deployment shrinks: which of its pods are to go. Streams that they serve end on them first."""
    if not 0 < replicas < int(spec_of(live).get("replicas", 1)):
        return []  # all go, or none
    present = [pod for pod in fleet.pods(revision_of(live)) if not is_terminating(pod)]
    return [Mark(manifest) for manifest in victims.marks(present, len(present) - replicas, fleet.work)]


def changed(manifest: Manifest, live: Json | None) -> list[Write]:
    """The manifest to apply, or nothing when the live object says it already."""
    if live is not None:
        annotations = live["metadata"].get("annotations") or {}
        same_hash = annotations.get(SPEC_HASH) == manifest["metadata"]["annotations"][SPEC_HASH]
        # Objects from a list do not name their kind.
        said = {key: value for key, value in manifest.items() if key not in {"apiVersion", "kind"}}
        if same_hash and drift.holds(said, live):
            return []
    return [Apply(manifest)]


def taken_back(owner: Json, key: Key, children: Children) -> list[Write]:
    """Records that nobody controls, of a backup that was restored: they say what the owner's URIs were and its pods
    are."""
    return [
        Apply(record(owner, key, name_of(live), dict(live.get("data") or {}), number=records.number(live)))
        for live in children.records
        if not controller_of(live)
    ]


def pool_writes(owner: Json, key: Key, children: Children, visitors: Visitors | None, fellows: Fellows) -> list[Write]:
    """Service, PodDisruptionBudget and NetworkPolicy, when they are missing or differ; nothing of somebody else is
    overwritten. Without ``visitors`` policies are switched off, and one of ours goes.

    The policy comes first: pods never run without it. The budget comes once there are pods: without any its controller
    complains at every look. No pod serves before it is there: the status that publishes the first is written after it.
    """
    wanted = [(service(owner, key), children.service)]
    if children.has_pods:
        wanted.append((disruption_budget(owner, key), children.budget))
    surplus: list[Write] = []
    if visitors is not None:
        wanted.insert(0, (network_policy(owner, key, visitors, fellows), children.policy))
    elif children.policy is not None and controller_of(children.policy).get("uid") == metadata(owner)["uid"]:
        surplus.append(Delete(Ref.of("NetworkPolicy", children.policy)))
    made = [write for manifest, live in wanted if not _strange(owner, key, live) for write in changed(manifest, live)]
    return [*surplus, *made]


def taken(owner: Json, key: Key, children: Children) -> str:
    """What stands under a name that a child should have, and how to mend it; empty when nothing does."""
    named = (
        ("Service", children.service),
        ("PodDisruptionBudget", children.budget),
        ("NetworkPolicy", children.policy),
    )
    found = [f"{kind} {full_name(live)}" for kind, live in named if live is not None and _strange(owner, key, live)]
    if not found:
        return ""
    return f"{' and '.join(found)} exists and is not the operator's: delete or rename it, or name this object otherwise"


def _strange(owner: Json, key: Key, live: Json | None) -> bool:
    """Neither controlled by the owner nor with our labels (a child that was orphaned is taken back)."""
    if live is None or controller_of(live).get("uid") == owner["metadata"]["uid"]:
        return False
    return not labels.owned_by(key).items() <= labels_of(live).items()


def trim(fleet: Fleet, limit: int, uris: Collection[str]) -> list[Write]:
    """Records beyond the history limit, of revisions and of resolved URIs; those in use stay."""
    revisions: list[Json] = []
    weights: list[Json] = []
    checks: list[Json] = []
    used = {labels.child_name(fleet.key, revision) for revision in (fleet.target.revision, *fleet.aside)}
    for item in sorted(fleet.children.records, key=records.number, reverse=True):
        parsed = records.parse(item)
        if isinstance(parsed, WeightsRecord):
            weights += [item] if parsed.uri not in uris else []
        elif isinstance(parsed, VerificationRecord):
            checks.append(item)
        elif isinstance(parsed, CanaryRecord | ProfilesRecord):
            continue  # these go with what they are about
        elif item["metadata"]["name"] not in used:
            revisions.append(item)
    # Of checks the last ones also stay without any history: they say that what serves may serve.
    old = (*revisions[limit:], *weights[limit:], *checks[limit + _LAST_CHECKS :])
    return [Delete(Ref.of("ControllerRevision", item)) for item in old]


def progress(fleet: Fleet, rolled: Rolled, want: int) -> Verdict:
    """The condition ``Progressing``: what a roll-out waits for, or that there is none."""
    revision = fleet.target.revision
    live = fleet.deployment(revision)
    if rolled.done:
        return Verdict(ConditionType.PROGRESSING, "False", Reason.ROLLOUT_COMPLETE, f"revision {revision}")
    side, others = fleet.side(revision), fleet.others()
    if live is not None and deadline_passed(live):
        why = pods.problem(fleet.pods(revision)) or pods.refused([live])
        detail = f": {why[1]}" if why else ""
        return Verdict(
            ConditionType.PROGRESSING,
            "False",
            Reason.PROGRESS_DEADLINE_EXCEEDED,
            f"revision {revision} made no progress within rollout.progressDeadlineSeconds{detail}",
        )
    text = f"revision {revision}: {side.usable} of {want} pods serve"
    if fleet.held:
        text += ", and none before it has answered golden prompts (Verified)"
    if others:
        left = ", ".join(f"{o.revision} ({o.replicas} wanted, {o.present} present)" for o in others)
        text += f"; still there: {left}"
    if any(other.present for other in others) and not rolled.replicas[revision]:
        text += "; maxSurge is 0, so the old revision stops first"
    return Verdict(ConditionType.PROGRESSING, "True", Reason.ROLLING_OUT, text)


def deadline_passed(live: Json) -> bool:
    return any(
        c.get("type") == "Progressing" and c.get("reason") == "ProgressDeadlineExceeded"
        for c in status_of(live).get("conditions") or ()
    )


def counts(fleet: Fleet) -> dict[str, Any]:
    """``replicas``, ``readyReplicas`` and ``updatedReplicas`` of the status."""
    statuses = [(revision_of(d), status_of(d)) for d in fleet.children.deployments]
    return {
        "replicas": sum(int(s.get("replicas") or 0) for _, s in statuses),
        "readyReplicas": sum(int(s.get("readyReplicas") or 0) for _, s in statuses),
        "updatedReplicas": sum(int(s.get("replicas") or 0) for r, s in statuses if r == fleet.target.revision),
    }


def draining(children: Children) -> int:
    """Engine pods that finish their streams."""
    return sum(1 for pod in children.pods if runs_engine(pod) and is_terminating(pod))


def current(fleet: Fleet, rolled: Rolled) -> str:
    """The revision that serves by itself after this step."""
    return fleet.target.revision if rolled.done else fleet.current


def serving(live: Json, known: Iterable[ModelRevision]) -> str:
    """The revision that its status says serves; one without a record cannot be described and does not count."""
    name = str(status_of(live).get("currentRevision") or "")
    return name if any(record.revision == name for record in known) else ""


def limits(spec: Rollout, wanted: Wanted) -> rollout.Limits:
    """What a roll-out may do, also to the budget."""
    given = rollout.Limits.of(spec, wanted.count)
    return given.within(wanted.room) if wanted.budgeted else given
