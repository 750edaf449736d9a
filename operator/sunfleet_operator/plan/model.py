"""What to do about a SunModel. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from pydantic import ValidationError

from sunfleet_api.conditions import MODEL_ROLL_UP, ConditionType, Reason
from sunfleet_api.digests import KVFingerprint
from sunfleet_api.sun_model import PrefillModelStatus, SunModel, SunModelStatus
from sunfleet_operator import records
from sunfleet_operator.build import labels, network
from sunfleet_operator.build.network import Visitors
from sunfleet_operator.observed import Defaults, Needs, ObservedModel
from sunfleet_operator.plan import (
    canary,
    conditions,
    pods,
    pooled,
    profiles,
    replicas,
    revisions,
    routed,
    status,
    steps,
    traffic,
    verify,
)
from sunfleet_operator.plan.actions import Delete, Plan, Write
from sunfleet_operator.plan.canary import Decided, Entrant, Others
from sunfleet_operator.plan.canary_pods import OwnPods
from sunfleet_operator.plan.candidate import Candidate, candidate
from sunfleet_operator.plan.common import (
    TAKEN_SECONDS,
    ignored,
    look_again,
    paused,
    refused,
    soonest,
)
from sunfleet_operator.plan.conditions import Verdict
from sunfleet_operator.plan.opening import opened
from sunfleet_operator.plan.replicas import Wanted
from sunfleet_operator.plan.revisions import Fleet, Rolled
from sunfleet_operator.plan.verify import Check
from sunfleet_operator.records import DecoderRevision, ModelRevision
from sunfleet_operator.references import canary_decoder_of, canary_of, decoders_of, pool_of
from sunfleet_operator.types import Ref, full_name, is_terminating, revision_of, spec_of, status_of


@dataclass(frozen=True)
class _Outcome:
    """The parts of a plan that the status tells of. ``fleet`` is there when any revision is wanted."""

    want: Wanted
    base: Candidate
    checks: tuple[Check, ...]  # its own first, then the canary's
    verdicts: tuple[Verdict, ...]
    fleet: Fleet | None
    rolled: Rolled | None
    known: tuple[ModelRevision, ...]
    percent: Mapping[str, int]  # of new requests, by revision
    canary: Decided

    @property
    def check(self) -> Check:
        return self.checks[0]


def plan(observed: ObservedModel, defaults: Defaults, now: datetime, *, refusal: str = "") -> Plan:
    """Resolve, check against the decoder, keep the prefill pods, publish traffic. Deletion is the garbage collector's
    work."""
    if is_terminating(observed.live):
        return Plan()
    begun = opened(observed, SunModel, ConditionType.RESOLVED_REFS, now)
    if isinstance(begun, Plan):
        return begun
    observed, model, made = begun.observed, begun.resource, begun.made
    if pool_of(observed.live) is not None:
        return pooled.plan(observed, model, made, defaults, now, refusal=refusal)
    want = replicas.wanted(_scaling_facts(observed, model), now)
    outcome = _decide(observed, model, defaults, want, now)
    fields = _fields(observed, model, outcome)
    verdicts = [
        *outcome.verdicts,
        *routed.of_task(observed.live, fields["traffic"], observed.heard),
        *want.verdicts,
        *made.verdicts,
        *ignored(model.spec, observed.decoder),
        *paused(spec_paused=model.spec.paused),
    ]
    taken = revisions.taken(observed.live, observed.key, observed.children)
    verdicts = refused(verdicts, refusal or taken)
    verdicts.append(
        conditions.ready(verify.counting(model, verdicts, none=want.count == 0), MODEL_ROLL_UP, zero=want.count == 0)
    )
    back = revisions.taken_back(observed.live, observed.key, observed.children)
    before, after = _writes(observed, outcome, defaults.visitors)
    held = model.spec.paused
    return Plan(
        before=() if held else (*back, *made.writes, *before),
        status=status.write(observed.live, fields, verdicts, now),
        after=() if held else after,
        events=(*status.events(observed.live, verdicts), *(() if held else (*want.events, *outcome.canary.events))),
        requeue_after=soonest(
            TAKEN_SECONDS if taken else None,
            outcome.base.resolution.requeue_after,
            *(check.requeue_after for check in outcome.checks),
            outcome.canary.requeue_after,
            want.requeue_after,
            look_again(verdicts),
        ),
        effective=made.live if made.used else None,
        checks=() if held else tuple(check.result for check in outcome.checks if check.result),
        canary="" if held else outcome.canary.ended,
    )


def needs(observed: ObservedModel) -> Needs:
    """What else has to be read before :func:`plan`."""
    made = profiles.effective(observed.live, observed.key, observed.children, observed.profiles)
    try:
        asked = SunModel.parse(made.live).spec.verification
    except ValidationError:
        return Needs()
    beside = canary_decoder_of(made.live)
    if asked is None or not asked.checks:
        return Needs(canary_decoder=beside)
    source = asked.golden_prompts.config_map_ref if asked.golden_prompts else None
    return Needs(config_map=source.name if source else "", decode_pods=True, canary_decoder=beside)


def _scaling_facts(observed: ObservedModel, model: SunModel) -> replicas.Facts:
    spec, beside = model.spec, canary_of(observed.live)
    own = [live for live in observed.children.deployments if revision_of(live) != beside]
    return replicas.Facts(
        observed.live, spec.replicas, spec.autoscaling, own, observed.told,
        budgeted=bool(observed.decoder and spec_of(observed.decoder).get("gpuBudget")),
    )  # fmt: skip


def _writes(
    observed: ObservedModel, outcome: _Outcome, visitors: Visitors | None
) -> tuple[tuple[Write, ...], tuple[Write, ...]]:
    fellows = network.of_task(observed.key, decoders_of(observed.live))
    pool = revisions.pool_writes(observed.live, observed.key, observed.children, visitors, fellows)
    if outcome.base.standing.refused:
        deployments = [Delete(Ref.of("Deployment", live)) for live in observed.children.deployments]
        return (), (*deployments, *(Delete(Ref.of("Job", live)) for live in observed.children.jobs))
    checks = (*verify.stale_jobs(observed.children, outcome.checks), *outcome.check.writes)
    rolled = outcome.rolled.before if outcome.rolled else ()
    before = (*outcome.base.resolution.writes, *pool, *rolled, *checks, *outcome.canary.before)
    return before, outcome.rolled.after if outcome.rolled else ()


def _decide(observed: ObservedModel, model: SunModel, defaults: Defaults, want: Wanted, now: datetime) -> _Outcome:
    known = records.newest(observed.children.records, ModelRevision)
    current = revisions.serving(observed.live, known)
    serving = next((record for record in known if record.revision == current), None)
    here = "/".join(model.spec.decoder_ref.resolve(observed.key.namespace))
    elsewhere = serving is not None and serving.decoder != here
    own, beside = canary.asks(model, observed, defaults)
    leave = () if own == beside else (beside,)
    base = candidate(observed, model, defaults, known, now, elsewhere=elsewhere, leave=leave)
    serves = base.target is not None and base.target.revision == current
    check = canary.checked(observed, model, base, defaults, serving=serves, now=now)
    entrant = None if base.standing.refused else canary.enter(observed, model, base, defaults, known, current, now)
    known = _with(known, base.target, entrant.revision if entrant else None)
    fleet, rolled = _roll(observed, model, want, base, known, check, entrant.aside if entrant else frozenset())
    percent = _shares(observed, want, fleet, rolled)
    decided = _canary(observed, model, want, entrant, fleet, rolled, percent, now)
    verdicts = (
        *base.verdicts,
        *_pod_verdicts(observed, model, want, base.standing.contract, fleet, rolled),
        *verify.verified(check, serving),
    )
    percent = steps.shares(dict(percent), decided.revision, decided.percent)
    checks = (check, *([entrant.check] if entrant else []))
    return _Outcome(want, base, checks, verdicts, fleet, rolled, tuple(known), percent, decided)


def _with(known: list[ModelRevision], *more: ModelRevision | None) -> list[ModelRevision]:
    """Records and what will be one, newest first."""
    made = [record for record in more if record is not None]
    return [*made, *(record for record in known if record.revision not in {new.revision for new in made})]


def _shares(observed: ObservedModel, want: Wanted, fleet: Fleet | None, rolled: Rolled | None) -> Mapping[str, int]:
    """Percent of new requests per revision, without a canary."""
    if fleet is None or rolled is None:
        return {}
    target = fleet.target.revision
    serving = revisions.current(fleet, rolled)
    # A task that never had pods: its requests are held and bring up the first one, which is then checked.
    serving = serving or (target if want.count == 0 else "")
    return traffic.shares(fleet.usable, serving, target, least=canary.least(observed, target))


def _canary(
    observed: ObservedModel,
    model: SunModel,
    want: Wanted,
    entrant: Entrant | None,
    fleet: Fleet | None,
    rolled: Rolled | None,
    percent: Mapping[str, int],
    now: datetime,
) -> Decided:
    if model.spec.paused:
        told = status_of(observed.live).get("canary")
        return Decided(status=canary.live_status(observed) if told else None)
    room = None
    if want.budgeted:
        room = max(0, (want.room or 0) - max(0, sum(rolled.replicas.values() if rolled else ()) - want.count))
    others = Others(percent, fleet.target.revision if fleet else "", rolled is not None and rolled.done)
    return canary.decide(entrant, observed, others, partial(OwnPods.of, observed, model.spec.rollout, want, room), now)


def _roll(
    observed: ObservedModel,
    model: SunModel,
    want: Wanted,
    base: Candidate,
    known: list[ModelRevision],
    check: Check,
    aside: frozenset[str],
) -> tuple[Fleet | None, Rolled | None]:
    """Without a new revision (weights or decoder not ready, KV that does not fit, wrong answers to golden prompts) the
    serving one is kept as it is."""
    current, target = revisions.serving(observed.live, known), base.target
    serving = next((record for record in known if record.revision == current), None)
    kept = target is None or _too_early(observed, target, serving) or (check.rejected and serving is not None)
    wanted = serving if kept else target
    if wanted is None or base.standing.refused:
        return None, None
    usable = _usable(observed, known, "/".join(model.spec.decoder_ref.resolve(observed.key.namespace)))
    held = wanted is target and not check.cleared
    if held:
        usable = {revision: pods for revision, pods in usable.items() if revision != wanted.revision}
    work = observed.told.work if observed.told else {}
    fleet = Fleet(observed.live, observed.key, observed.children, wanted, current, usable, work, held, aside)
    if want.room is not None:  # what a canary has of it is taken
        taken = sum(fleet.side(revision).replicas for revision in aside)
        want = replace(want, room=max(0, want.room - taken))
    return fleet, revisions.roll(fleet, want, model.spec.rollout, uris=_uris(model))


def _uris(model: SunModel) -> set[str]:
    beside = model.spec.canary.prefill if model.spec.canary else None
    return {model.spec.prefill.source.uri, *([beside.source.uri] if beside else [])}


def _too_early(observed: ObservedModel, target: ModelRevision, serving: ModelRevision | None) -> bool:
    """A new KV format waits for its first decode pod, so that a decoder whose new revision never starts costs no task a
    GPU. Not when nothing serves meanwhile, and not once the new pods have been started."""
    if serving is None or any(revision_of(live) == target.revision for live in observed.children.deployments):
        return False
    readable = revisions.formats(observed.decoder_deployments)
    elsewhere = serving.decoder != target.decoder
    still_serves = elsewhere or serving.kv_fingerprint.label in readable
    return still_serves and target.kv_fingerprint.label not in readable


def _usable(observed: ObservedModel, known: list[ModelRevision], here: str) -> Mapping[str, int]:
    """Available prefill pods per revision, for those whose KV some decode pod can read now.

    A revision that still names another decoder counts by itself: that decoder's pods are not observed, and it served
    until now.
    """
    readable = revisions.formats(observed.decoder_deployments)
    by_revision = {record.revision: record for record in known}
    usable: dict[str, int] = {}
    for live in observed.children.deployments:
        record = by_revision.get(revision_of(live))
        if record is not None and (record.decoder != here or record.kv_fingerprint.label in readable):
            usable[record.revision] = revisions.available(live)
    return usable


def _pod_verdicts(
    observed: ObservedModel,
    model: SunModel,
    want: Wanted,
    contract: DecoderRevision | None,
    fleet: Fleet | None,
    rolled: Rolled | None,
) -> list[Verdict]:
    verdicts = [_decoder_ready(observed, model, contract, fleet)]
    if fleet is None or rolled is None:
        verdicts.append(Verdict(ConditionType.PREFILL_READY, "Unknown", Reason.PENDING, "no revision to run yet"))
        return verdicts
    return [*verdicts, _prefill_ready(observed, model, want, fleet), revisions.progress(fleet, rolled, want.count)]


def _decoder_ready(
    observed: ObservedModel, model: SunModel, contract: DecoderRevision | None, fleet: Fleet | None
) -> Verdict:
    """Decode pods for the revision that is wanted now; while a decoder rolls out, for the one that still serves."""
    type_ = ConditionType.DECODER_READY
    if contract is None:
        return Verdict(type_, "Unknown", Reason.PENDING, "waits for the decoder's KV contract")
    wanted = fleet.target if fleet else None
    here = (
        isinstance(wanted, ModelRevision)
        and observed.decoder is not None
        and wanted.decoder == full_name(observed.decoder)
    )
    kv = wanted.kv_fingerprint if wanted is not None and here else contract.kv_fingerprint
    if kv.label in revisions.formats(observed.decoder_deployments):
        return Verdict(type_, "True", Reason.MINIMUM_REPLICAS_AVAILABLE, "")
    namespace, name = model.spec.decoder_ref.resolve(observed.key.namespace)
    decoder = wanted.decoder if isinstance(wanted, ModelRevision) else f"{namespace}/{name}"
    message = f"no decode pod of SharedDecoder {decoder} that reads this task's KV is available: see its conditions"
    return Verdict(type_, "False", Reason.DECODER_NOT_READY, message)


def _prefill_ready(observed: ObservedModel, model: SunModel, wanted: Wanted, fleet: Fleet) -> Verdict:
    """Enough prefill pods, of any revision, whether or not a decode pod is there for them."""
    type_, want = ConditionType.PREFILL_READY, wanted.count
    if want == 0:
        return Verdict(type_, "True", Reason.SCALED_TO_ZERO, "no replicas are wanted")
    others = [live for live in observed.children.deployments if revision_of(live) not in fleet.aside]
    have = sum(revisions.available(live) for live in others)
    least = max(1, want - revisions.limits(model.spec.rollout, wanted).unavailable)
    text = f"{have} of {want} prefill pods are available"
    if have >= least:
        return Verdict(type_, "True", Reason.MINIMUM_REPLICAS_AVAILABLE, text)
    new = fleet.pods(fleet.target.revision)
    live = fleet.deployment(fleet.target.revision)
    why = pods.problem(new) or pods.refused([live] if live else ()) or pods.waiting(new, fleet.children.progress)
    if why is not None:
        return Verdict(type_, "False", why[0], f"{text}; {why[1]}")
    return Verdict(type_, "False", Reason.MINIMUM_REPLICAS_UNAVAILABLE, text)


def _fields(observed: ObservedModel, model: SunModel, outcome: _Outcome) -> dict[str, object]:
    """The status without its conditions and generation."""
    report, fleet, rolled = outcome.base.resolution.report, outcome.fleet, outcome.rolled
    known = list(outcome.known)
    current = revisions.current(fleet, rolled) if fleet and rolled else revisions.serving(observed.live, known)
    made = SunModelStatus(
        model_name=model.model_name,
        selector=labels.selector_text(labels.pool_selector(observed.key)),
        current_revision=current,
        update_revision=_asked_for(outcome),
        model=PrefillModelStatus(
            resolved_uri=report.resolved_uri, digest=report.digest, tuned_against=report.tuned_against
        )
        if report
        else PrefillModelStatus(),
        kv_fingerprint=next((r.kv_fingerprint for r in known if r.revision == current), KVFingerprint()),
        effective_traffic=model.spec.traffic if observed.profiles else None,
        verification=outcome.check.status,
        canary=outcome.canary.status,
    ).to_wire()
    for computed in ("conditions", "observedGeneration"):
        made.pop(computed)
    if outcome.want.status is not None:
        made["scaling"] = outcome.want.status
    made["traffic"] = routes = _traffic(observed, model, outcome)
    made["adapters"] = pooled.still_routed(observed.key, routes, outcome.known)
    return made | (revisions.counts(fleet) if fleet else {})


def _asked_for(outcome: _Outcome) -> str:
    """The revision of the spec, also while its wrong answers keep it from being rolled out."""
    if outcome.check.rejected and outcome.base.target is not None:
        return outcome.base.target.revision
    return outcome.fleet.target.revision if outcome.fleet else ""


def _traffic(observed: ObservedModel, model: SunModel, outcome: _Outcome) -> object:
    """None while something that does not pass by itself forbids it; a pause freezes what is there."""
    if model.spec.paused and not outcome.base.standing.no_traffic:
        return list(status_of(observed.live).get("traffic") or ())
    if outcome.fleet is None or outcome.base.standing.no_traffic:
        return []
    uid = str(observed.live["metadata"]["uid"])
    return [entry.to_wire() for entry in traffic.entries(observed.key, uid, outcome.percent, outcome.known)]
