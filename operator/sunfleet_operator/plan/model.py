"""What to do about a SunModel. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from pydantic import ValidationError

from sunfleet_api import names
from sunfleet_api.checkpoint import ADAPTER
from sunfleet_api.conditions import MODEL_ROLL_UP, ConditionType, Reason
from sunfleet_api.digests import KVFingerprint
from sunfleet_api.fingerprint import revision_hash
from sunfleet_api.inactive import inactive_fields
from sunfleet_api.sun_model import PrefillModelStatus, SunModel, SunModelStatus
from sunfleet_api.worker import ResolverReport
from sunfleet_operator import records
from sunfleet_operator.build import labels
from sunfleet_operator.build.engine_pod import FORM, EnginePod, template
from sunfleet_operator.build.volumes import GivenVolumes
from sunfleet_operator.build.weights import Weights, adapter_weights, model_weights, resolved
from sunfleet_operator.observed import Defaults, ObservedModel
from sunfleet_operator.plan import (
    conditions,
    pods,
    profiles,
    replicas,
    revisions,
    status,
    task,
    traffic,
    weights,
)
from sunfleet_operator.plan.actions import Delete, Plan, Write
from sunfleet_operator.plan.common import (
    TAKEN_SECONDS,
    asked_download,
    ignored,
    invalid,
    paused,
    refused,
    soonest,
    unknown,
    waiting,
    worker_settings,
)
from sunfleet_operator.plan.conditions import Verdict
from sunfleet_operator.plan.replicas import Wanted
from sunfleet_operator.plan.revisions import Fleet, Rolled
from sunfleet_operator.records import DecoderRevision, ModelRevision
from sunfleet_operator.types import Ref, full_name, is_terminating, revision_of, spec_of, status_of


@dataclass(frozen=True)
class _Outcome:
    """The parts of a plan that the status tells of. ``fleet`` is there when any revision is wanted."""

    want: Wanted
    standing: task.Standing
    resolution: weights.Resolution
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
    verdicts.append(conditions.ready(verdicts, MODEL_ROLL_UP, zero=want.count == 0))
    before, after = _writes(observed, outcome)
    held = model.spec.paused
    return Plan(
        before=() if held else (*made.writes, *before),
        status=status.write(observed.live, _fields(observed, model, outcome), verdicts, now),
        after=() if held else after,
        events=(*status.events(observed.live, verdicts), *(() if held else want.events)),
        requeue_after=soonest(TAKEN_SECONDS if taken else outcome.resolution.requeue_after, want.requeue_after),
        effective=made.live if made.used else None,
    )


def _scaling_facts(observed: ObservedModel, model: SunModel) -> replicas.Facts:
    spec = model.spec
    return replicas.Facts(
        observed.live, spec.replicas, spec.autoscaling, observed.children.deployments, observed.told,
        budgeted=bool(observed.decoder and spec_of(observed.decoder).get("gpuBudget")),
    )  # fmt: skip


def _writes(observed: ObservedModel, outcome: _Outcome) -> tuple[tuple[Write, ...], tuple[Write, ...]]:
    pool = revisions.pool_writes(observed.live, observed.key, observed.children)
    if outcome.standing.refused:
        deployments = [Delete(Ref.of("Deployment", live)) for live in observed.children.deployments]
        return (), (*deployments, *(Delete(Ref.of("Job", live)) for live in observed.children.jobs))
    before = (*outcome.resolution.writes, *pool, *(outcome.rolled.before if outcome.rolled else ()))
    return before, outcome.rolled.after if outcome.rolled else ()


def _decide(observed: ObservedModel, model: SunModel, defaults: Defaults, want: Wanted, now: datetime) -> _Outcome:
    known = records.newest(observed.children.records, ModelRevision)
    serving = next((record for record in known if record.revision == _current(observed, known)), None)
    here = "/".join(model.spec.decoder_ref.resolve(observed.key.namespace))
    standing = task.standing(observed, model, elsewhere=serving is not None and serving.decoder != here)
    resolution = _resolve(observed, model, defaults, now, refused=standing.refused)
    contract, report = standing.contract, resolution.report
    unreachable = task.unreachable_base(observed, model, contract) if contract else None
    if unreachable is not None:
        standing = replace(standing, verdicts=(standing.verdicts[0], unreachable))
    fits = task.compatible(observed, model, contract, report)
    target = None
    if contract and report and fits.status == "True" and unreachable is None:
        target = _target(observed, model, contract, report, defaults, known)
        if model.spec.paused and target not in known:
            target = None
    if target is not None:
        known = [target, *(record for record in known if record.revision != target.revision)]
    fleet, rolled = _roll(observed, model, want, target, known, refused=standing.refused)
    verdicts = (
        *standing.verdicts,
        resolution.verdict,
        fits,
        *_pod_verdicts(observed, model, want, contract, fleet, rolled),
    )
    return _Outcome(want, standing, resolution, verdicts, fleet, rolled, tuple(known))


def _resolve(
    observed: ObservedModel, model: SunModel, defaults: Defaults, now: datetime, *, refused: bool
) -> weights.Resolution:
    if refused:
        waiting = Verdict(ConditionType.WEIGHTS_READY, "Unknown", Reason.PENDING, "not looked at while refused")
        return weights.Resolution(None, waiting)
    source, pod = model.spec.prefill.source, weights.inherited(model.spec.template.spec)
    question = weights.Question(source, _module(model), defaults.fetcher.told(source.download), pod)
    held = model.spec.paused
    return weights.resolve(observed.live, observed.key, observed.children, question, paused=held, now=now)


def _module(model: SunModel) -> Weights:
    """The task's own module as it stands in a pod."""
    source, given = model.spec.prefill.source, GivenVolumes.of(model.spec.template.spec)
    make = adapter_weights if model.spec.prefill.adapter else model_weights
    return make(source.uri, source.credentials_secret_ref.name if source.credentials_secret_ref else "", given)


def _target(
    observed: ObservedModel,
    model: SunModel,
    contract: DecoderRevision,
    report: ResolverReport,
    defaults: Defaults,
    known: list[ModelRevision],
) -> ModelRevision:
    """The revision that the spec asks for: the recorded one where it was built before."""
    spec, module = model.spec, resolved(_module(model), report)
    decoder = "/".join(spec.decoder_ref.resolve(observed.key.namespace))
    base = [contract.report.resolved_uri, contract.report.digest, contract.secret] if spec.prefill.adapter else []
    revision = revision_hash(
        "model",
        {
            "form": FORM,
            "engine": contract.engine.model_dump(mode="json"),
            "kv": contract.kv_fingerprint.digest,
            "decoder": decoder,
            "decoderDigest": contract.decoder_digest,
            "module": [module.uri, module.path, module.secret, report.digest],
            "base": base,
            "template": spec.template.given(),
            "drain": spec.rollout.drain_timeout_seconds,
            "deadline": spec.rollout.progress_deadline_seconds,
            **asked_download(spec.prefill.source),
        },
    )
    found = next((record for record in known if record.revision == revision), None)
    if found is not None:
        return found
    below = model_weights(contract.report.resolved_uri, contract.secret, module.given)
    in_pod = [resolved(below, contract.report), module] if base else [module]
    rank = (report.config.get(ADAPTER) or {}).get("rank")
    adapter = {"adapter_path": names.ADAPTER_PATH, **({"max_lora_rank": rank} if rank else {})} if base else {}
    kv = contract.kv_fingerprint
    pod = EnginePod(
        image=contract.engine.image,
        pull_policy=defaults.pull_policy,
        fetcher=defaults.fetcher.told(spec.prefill.source.download),
        weights=in_pod,
        settings=worker_settings("prefill", contract.engine, kv, spec.rollout.drain_timeout_seconds, **adapter),
        labels=labels.pod_labels(observed.key, revision, kv),
        start_deadline_seconds=spec.rollout.progress_deadline_seconds,
        overlay=spec.template.to_wire(),
    )
    return ModelRevision(
        revision=revision,
        decoder=decoder,
        decoder_digest=contract.decoder_digest,
        digest=report.digest,
        kv_fingerprint=kv,
        template=template(pod),
    )


def _current(observed: ObservedModel, known: list[ModelRevision]) -> str:
    """The serving revision; one without a record cannot be described and does not count."""
    name = str(status_of(observed.live).get("currentRevision") or "")
    return name if any(record.revision == name for record in known) else ""


def _roll(
    observed: ObservedModel,
    model: SunModel,
    want: Wanted,
    target: ModelRevision | None,
    known: list[ModelRevision],
    *,
    refused: bool,
) -> tuple[Fleet | None, Rolled | None]:
    """Without a new revision (weights or decoder not ready, KV that does not fit) the serving one is kept as it is."""
    current = _current(observed, known)
    serving = next((record for record in known if record.revision == current), None)
    wanted = serving if target is None or _too_early(observed, target, serving) else target
    if wanted is None or refused:
        return None, None
    usable = _usable(observed, known, "/".join(model.spec.decoder_ref.resolve(observed.key.namespace)))
    work = observed.told.work if observed.told else {}
    fleet = Fleet(observed.live, observed.key, observed.children, wanted, current, usable, work)
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
    why = pods.problem(new) or pods.waiting(new)
    if why is not None:
        return Verdict(type_, "False", why[0], f"{text}; {why[1]}")
    return Verdict(type_, "False", Reason.MINIMUM_REPLICAS_UNAVAILABLE, text)


def _fields(observed: ObservedModel, model: SunModel, outcome: _Outcome) -> dict[str, object]:
    """The status without its conditions and generation."""
    report, fleet, rolled = outcome.resolution.report, outcome.fleet, outcome.rolled
    known = list(outcome.known)
    current = revisions.current(fleet, rolled) if fleet and rolled else _current(observed, known)
    made = SunModelStatus(
        model_name=model.model_name,
        selector=labels.selector_text(labels.pool_selector(observed.key)),
        current_revision=current,
        update_revision=fleet.target.revision if fleet else "",
        model=PrefillModelStatus(
            resolved_uri=report.resolved_uri, digest=report.digest, tuned_against=report.tuned_against
        )
        if report
        else PrefillModelStatus(),
        kv_fingerprint=next((r.kv_fingerprint for r in known if r.revision == current), KVFingerprint()),
        effective_traffic=model.spec.traffic if observed.profiles else None,
    ).to_wire()
    for computed in ("conditions", "observedGeneration"):
        made.pop(computed)
    if outcome.want.status is not None:
        made["scaling"] = outcome.want.status
    made["traffic"] = _traffic(observed, model, outcome, current)
    return made | (revisions.counts(fleet) if fleet else {})


def _traffic(observed: ObservedModel, model: SunModel, outcome: _Outcome, current: str) -> object:
    """None while something that does not pass by itself forbids it; a pause freezes what is there."""
    if model.spec.paused and not outcome.standing.no_traffic:
        return list(status_of(observed.live).get("traffic") or ())
    fleet = outcome.fleet
    if fleet is None or outcome.standing.no_traffic:
        return []
    percent = traffic.shares(fleet.usable, current, fleet.target.revision)
    uid = str(observed.live["metadata"]["uid"])
    return [entry.to_wire() for entry in traffic.entries(observed.key, uid, percent, outcome.known)]
