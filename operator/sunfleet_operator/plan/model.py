"""What to do about a SunModel. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from pydantic import ValidationError

from sunfleet_api import names
from sunfleet_api.conditions import MODEL_ROLL_UP, ConditionType, Reason
from sunfleet_api.digests import KVFingerprint
from sunfleet_api.inactive import inactive_fields
from sunfleet_api.sun_model import PrefillModelStatus, SunModel, SunModelStatus
from sunfleet_operator import records
from sunfleet_operator.build import labels, network
from sunfleet_operator.build.network import Visitors
from sunfleet_operator.observed import Defaults, Needs, ObservedModel
from sunfleet_operator.plan import (
    conditions,
    pods,
    profiles,
    replicas,
    revisions,
    status,
    traffic,
    verify,
    weights,
)
from sunfleet_operator.plan.actions import Delete, Plan, Write
from sunfleet_operator.plan.candidate import Candidate, candidate
from sunfleet_operator.plan.common import (
    TAKEN_SECONDS,
    ignored,
    invalid,
    paused,
    refused,
    soonest,
    unknown,
    waiting,
)
from sunfleet_operator.plan.conditions import Verdict
from sunfleet_operator.plan.replicas import Wanted
from sunfleet_operator.plan.revisions import Fleet, Rolled
from sunfleet_operator.plan.verify import Check
from sunfleet_operator.records import DecoderRevision, ModelRevision
from sunfleet_operator.references import decoders_of
from sunfleet_operator.types import Ref, full_name, is_terminating, revision_of, spec_of, status_of


@dataclass(frozen=True)
class _Outcome:
    """The parts of a plan that the status tells of. ``fleet`` is there when any revision is wanted."""

    want: Wanted
    base: Candidate
    check: Check
    verdicts: tuple[Verdict, ...]
    fleet: Fleet | None
    rolled: Rolled | None
    known: tuple[ModelRevision, ...]


def plan(observed: ObservedModel, defaults: Defaults, now: datetime, *, refusal: str = "") -> Plan:
    """Resolve, check against the decoder, keep the prefill pods, publish traffic. Deletion is the garbage collector's
    work."""
    if is_terminating(observed.live):
        return Plan()
    if observed.children.predecessor:
        return waiting(observed.live, now)
    made = profiles.effective(observed.live, observed.key, observed.children, observed.profiles)
    obstacle = made.obstacle(ConditionType.RESOLVED_REFS)
    if obstacle is not None:
        return unknown(observed.live, obstacle, now)
    observed = replace(observed, live=made.live)
    try:
        model = SunModel.parse(observed.live)
    except ValidationError as error:
        return invalid(observed.live, error, now)
    want = replicas.wanted(_scaling_facts(observed, model), now)
    outcome = _decide(observed, model, defaults, want, now)
    verdicts = [
        *outcome.verdicts,
        *want.verdicts,
        *made.verdicts,
        *ignored(inactive_fields(model.spec)),
        *paused(spec_paused=model.spec.paused),
    ]
    taken = revisions.taken(observed.live, observed.key, observed.children)
    verdicts = refused(verdicts, refusal or taken)
    verdicts.append(conditions.ready(_counting(model, want, verdicts), MODEL_ROLL_UP, zero=want.count == 0))
    before, after = _writes(observed, outcome, defaults.visitors)
    held = model.spec.paused
    return Plan(
        before=() if held else (*made.writes, *before),
        status=status.write(observed.live, _fields(observed, model, outcome), verdicts, now),
        after=() if held else after,
        events=(*status.events(observed.live, verdicts), *(() if held else want.events)),
        requeue_after=soonest(
            TAKEN_SECONDS if taken else None,
            outcome.base.resolution.requeue_after,
            outcome.check.requeue_after,
            want.requeue_after,
        ),
        effective=made.live if made.used else None,
        checks=() if held or not outcome.check.result else (outcome.check.result,),
    )


def needs(observed: ObservedModel) -> Needs:
    """What else has to be read before :func:`plan`."""
    made = profiles.effective(observed.live, observed.key, observed.children, observed.profiles)
    try:
        asked = SunModel.parse(made.live).spec.verification
    except ValidationError:
        return Needs()
    if asked is None or not asked.checks:
        return Needs()
    source = asked.golden_prompts.config_map_ref if asked.golden_prompts else None
    return Needs(config_map=source.name if source else "", decode_pods=True)


def _counting(model: SunModel, want: Wanted, verdicts: list[Verdict]) -> list[Verdict]:
    """Those that ``Ready`` is made of: a check that only warns, or that no pod is there for, holds nothing back."""
    asked = model.spec.verification
    passed_over = asked is not None and (asked.policy == "Warn" or want.count == 0)
    return [verdict for verdict in verdicts if not passed_over or verdict.type != ConditionType.VERIFIED]


def _scaling_facts(observed: ObservedModel, model: SunModel) -> replicas.Facts:
    spec = model.spec
    return replicas.Facts(
        observed.live, spec.replicas, spec.autoscaling, observed.children.deployments, observed.told,
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
    checks = (*verify.stale_jobs(observed.children, [outcome.check]), *outcome.check.writes)
    before = (*outcome.base.resolution.writes, *pool, *(outcome.rolled.before if outcome.rolled else ()), *checks)
    return before, outcome.rolled.after if outcome.rolled else ()


def _decide(observed: ObservedModel, model: SunModel, defaults: Defaults, want: Wanted, now: datetime) -> _Outcome:
    known = records.newest(observed.children.records, ModelRevision)
    current = _current(observed, known)
    serving = next((record for record in known if record.revision == current), None)
    here = "/".join(model.spec.decoder_ref.resolve(observed.key.namespace))
    elsewhere = serving is not None and serving.decoder != here
    base = candidate(observed, model, defaults, known, now, elsewhere=elsewhere)
    if base.target is not None:
        known = [base.target, *(record for record in known if record.revision != base.target.revision)]
    check = _check(observed, model, base, defaults, current, now)
    fleet, rolled = _roll(observed, model, want, base, known, check)
    verdicts = (
        *base.verdicts,
        *_pod_verdicts(observed, model, want, base.standing.contract, fleet, rolled),
        *_verified(check, serving),
    )
    return _Outcome(want, base, check, verdicts, fleet, rolled, tuple(known))


def _check(
    observed: ObservedModel, model: SunModel, base: Candidate, defaults: Defaults, current: str, now: datetime
) -> Check:
    """Golden prompts for the revision that is asked for."""
    if base.target is None or base.module is None or observed.decoder is None:
        return Check(cleared=True)
    subject = verify.Subject(
        base.target, base.module, observed.decoder, observed.decoder_deployments, observed.decode_pods
    )
    source = model.spec.prefill.source
    facts = verify.Facts(
        observed.live, observed.key, observed.children, model.spec.verification, subject, observed.config_map,
        defaults.fetcher.told(source.download), weights.inherited(model.spec.template.spec),
        serving=base.target.revision == current, paused=model.spec.paused,
    )  # fmt: skip
    return verify.check(facts, now)


def _verified(check: Check, serving: ModelRevision | None) -> list[Verdict]:
    """``Verified``, where it was asked for, and who serves meanwhile."""
    if check.verdict is None:
        return []
    verdict = check.verdict
    if check.rejected and serving is not None:
        return [replace(verdict, message=f"{verdict.message}; revision {serving.revision} goes on serving")]
    return [verdict]


def _current(observed: ObservedModel, known: list[ModelRevision]) -> str:
    """The serving revision; one without a record cannot be described and does not count."""
    name = str(status_of(observed.live).get("currentRevision") or "")
    return name if any(record.revision == name for record in known) else ""


def _roll(
    observed: ObservedModel,
    model: SunModel,
    want: Wanted,
    base: Candidate,
    known: list[ModelRevision],
    check: Check,
) -> tuple[Fleet | None, Rolled | None]:
    """Without a new revision (weights or decoder not ready, KV that does not fit, wrong answers to golden prompts) the
    serving one is kept as it is."""
    current, target = _current(observed, known), base.target
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
    fleet = Fleet(observed.live, observed.key, observed.children, wanted, current, usable, work, held)
    rolled = revisions.roll(fleet, want, model.spec.rollout, uri=model.spec.prefill.source.uri)
    return fleet, rolled


def _too_early(observed: ObservedModel, target: ModelRevision, serving: ModelRevision | None) -> bool:
    """A new KV format waits for its first decode pod, so that a decoder whose new revision never starts costs no task a
    GPU. Not when nothing serves meanwhile, and not once the new pods have been started."""
    if serving is None or any(revision_of(live) == target.revision for live in observed.children.deployments):
        return False
    readable = decode_formats(observed)
    elsewhere = serving.decoder != target.decoder
    still_serves = elsewhere or serving.kv_fingerprint.label in readable
    return still_serves and target.kv_fingerprint.label not in readable


def _usable(observed: ObservedModel, known: list[ModelRevision], here: str) -> Mapping[str, int]:
    """Available prefill pods per revision, for those whose KV some decode pod can read now.

    A revision that still names another decoder counts by itself: that decoder's pods are not observed, and it served
    until now.
    """
    readable = decode_formats(observed)
    by_revision = {record.revision: record for record in known}
    usable: dict[str, int] = {}
    for live in observed.children.deployments:
        record = by_revision.get(revision_of(live))
        if record is not None and (record.decoder != here or record.kv_fingerprint.label in readable):
            usable[record.revision] = revisions.available(live)
    return usable


def decode_formats(observed: ObservedModel) -> frozenset[str]:
    """KV fingerprint labels of decode pods that are available now."""
    return frozenset(
        live["spec"]["template"]["metadata"]["labels"].get(names.LABEL_KV_FINGERPRINT, "")
        for live in observed.decoder_deployments
        if revisions.available(live)
    )


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
    if kv.label in decode_formats(observed):
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
    have = sum(revisions.available(live) for live in observed.children.deployments)
    least = max(1, want - revisions.limits(model.spec.rollout, wanted).unavailable)
    text = f"{have} of {want} prefill pods are available"
    if have >= least:
        return Verdict(type_, "True", Reason.MINIMUM_REPLICAS_AVAILABLE, text)
    new = fleet.pods(fleet.target.revision)
    live = fleet.deployment(fleet.target.revision)
    why = pods.problem(new) or pods.refused([live] if live else ()) or pods.waiting(new)
    if why is not None:
        return Verdict(type_, "False", why[0], f"{text}; {why[1]}")
    return Verdict(type_, "False", Reason.MINIMUM_REPLICAS_UNAVAILABLE, text)


def _fields(observed: ObservedModel, model: SunModel, outcome: _Outcome) -> dict[str, object]:
    """The status without its conditions and generation."""
    report, fleet, rolled = outcome.base.resolution.report, outcome.fleet, outcome.rolled
    known = list(outcome.known)
    current = revisions.current(fleet, rolled) if fleet and rolled else _current(observed, known)
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
    ).to_wire()
    for computed in ("conditions", "observedGeneration"):
        made.pop(computed)
    if outcome.want.status is not None:
        made["scaling"] = outcome.want.status
    made["traffic"] = _traffic(observed, model, outcome, current)
    return made | (revisions.counts(fleet) if fleet else {})


def _asked_for(outcome: _Outcome) -> str:
    """The revision of the spec, also while its wrong answers keep it from being rolled out."""
    if outcome.check.rejected and outcome.base.target is not None:
        return outcome.base.target.revision
    return outcome.fleet.target.revision if outcome.fleet else ""


def _traffic(observed: ObservedModel, model: SunModel, outcome: _Outcome, current: str) -> object:
    """None while something that does not pass by itself forbids it; a pause freezes what is there."""
    if model.spec.paused and not outcome.base.standing.no_traffic:
        return list(status_of(observed.live).get("traffic") or ())
    fleet = outcome.fleet
    if fleet is None or outcome.base.standing.no_traffic:
        return []
    # A task that never had pods: its requests are held and bring up the first one, which is then checked.
    current = current or (fleet.target.revision if outcome.want.count == 0 else "")
    percent = traffic.shares(fleet.usable, current, fleet.target.revision)
    uid = str(observed.live["metadata"]["uid"])
    return [entry.to_wire() for entry in traffic.entries(observed.key, uid, percent, outcome.known)]
