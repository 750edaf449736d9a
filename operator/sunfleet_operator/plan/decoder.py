"""What to do about a SharedDecoder. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from sunfleet_api.checkpoint import ADAPTER, CONTEXT_LIMIT
from sunfleet_api.conditions import DECODER_ROLL_UP, ConditionType, Reason
from sunfleet_api.digests import KVFingerprint
from sunfleet_api.fingerprint import decoder_digest, fingerprint, revision_hash
from sunfleet_api.shared_decoder import DecoderModelStatus, SharedDecoder, SharedDecoderStatus
from sunfleet_api.worker import ResolverReport
from sunfleet_operator import records
from sunfleet_operator.build import labels, network
from sunfleet_operator.build.engine_pod import FORM, EnginePod, template
from sunfleet_operator.build.protected import protected_changes
from sunfleet_operator.build.volumes import GivenVolumes
from sunfleet_operator.build.weights import Weights, model_weights, resolved
from sunfleet_operator.observed import Children, Defaults, ObservedDecoder
from sunfleet_operator.plan import (
    conditions,
    deletion,
    pods,
    quantization,
    replicas,
    revisions,
    routed,
    status,
    weights,
)
from sunfleet_operator.plan.actions import Plan
from sunfleet_operator.plan.common import (
    TAKEN_SECONDS,
    asked_download,
    asked_secrets,
    changes_contract,
    look_again,
    paused,
    refused,
    soonest,
    worker_settings,
)
from sunfleet_operator.plan.conditions import Verdict
from sunfleet_operator.plan.opening import opened
from sunfleet_operator.plan.replicas import Wanted
from sunfleet_operator.plan.revisions import Fleet, Rolled
from sunfleet_operator.records import DecoderRevision, Engine
from sunfleet_operator.types import is_engine, revision_of, status_of


@dataclass(frozen=True)
class _Outcome:
    """The parts of a plan that the status tells of."""

    want: Wanted
    changes: tuple[str, ...]  # what its overlay would change of the KV contract
    resolution: weights.Resolution
    target: DecoderRevision | None
    fleet: Fleet | None
    rolled: Rolled | None
    base: ResolverReport | None = None  # the checkpoint of spec.model, which is what is served unless it is quantised


def plan(observed: ObservedDecoder, defaults: Defaults, now: datetime, *, refusal: str = "") -> Plan:
    """Resolve, publish the contract, keep the pool, tell about it; see the conditions for what is still missing.

    ``refusal`` is what the API server said when this plan was tried a moment ago.
    """
    fate = deletion.decide(observed)
    if fate.release:
        return Plan(finalizer=fate.finalizer)
    begun = opened(observed, SharedDecoder, ConditionType.ACCEPTED, now, fate.verdicts)
    if isinstance(begun, Plan):
        return replace(begun, finalizer=fate.finalizer)
    observed, decoder, made = begun.observed, begun.resource, begun.made
    want = replicas.wanted(_scaling_facts(observed, decoder), now)
    outcome = _decide(observed, decoder, defaults, want, now)
    taken = revisions.taken(observed.live, observed.key, observed.children)
    told = (*made.verdicts, *fate.verdicts, *routed.of_decoder(observed.live, observed.heard))
    verdicts = refused([*_verdicts(observed, decoder, outcome), *told], refusal or taken)
    verdicts.append(conditions.ready(verdicts, DECODER_ROLL_UP, zero=want.count == 0))
    rolled = outcome.rolled
    held = decoder.spec.paused
    back = revisions.taken_back(observed.live, observed.key, observed.children)
    fellows = network.of_decoder(observed.key, decoder.spec.allowed_models.namespaces)
    pool = revisions.pool_writes(observed.live, observed.key, observed.children, defaults.visitors, fellows)
    return Plan(
        before=()
        if held
        else (*back, *made.writes, *outcome.resolution.writes, *pool, *(rolled.before if rolled else ())),
        status=status.write(observed.live, _fields(observed, outcome), verdicts, now),
        after=() if held or rolled is None else rolled.after,
        finalizer=fate.finalizer,
        events=(*status.events(observed.live, verdicts), *(() if held else want.events)),
        requeue_after=soonest(
            TAKEN_SECONDS if taken else outcome.resolution.requeue_after, want.requeue_after, look_again(verdicts)
        ),
        effective=made.live if made.used else None,
    )


def _scaling_facts(observed: ObservedDecoder, decoder: SharedDecoder) -> replicas.Facts:
    spec = decoder.spec
    return replicas.Facts(
        observed.live, spec.replicas, spec.autoscaling, observed.children.deployments, observed.told,
        budgeted=bool(spec.gpu_budget),
    )  # fmt: skip


def _decide(
    observed: ObservedDecoder, decoder: SharedDecoder, defaults: Defaults, want: Wanted, now: datetime
) -> _Outcome:
    source = decoder.spec.model
    asked, changes = _weights(decoder), protected_changes(decoder.spec.template.to_wire())
    question = weights.Question(
        source, asked, defaults.fetcher.told(source.download), weights.inherited(decoder.spec.template.spec)
    )
    paused_now = decoder.spec.paused
    quantized = decoder.spec.quantization
    others = [quantization.question(decoder, quantized, defaults).id(observed.key)] if quantized else []
    resolution = weights.resolve(
        observed.live, observed.key, observed.children, question, paused=paused_now, now=now, leave=others
    )
    base = resolution.report
    if quantized is not None and base is not None and base.config and ADAPTER not in base.config:
        made = quantization.resolve(
            observed, decoder, quantized, resolved(asked, base), defaults, now, [question.id(observed.key)]
        )
        resolution = replace(made, writes=(*resolution.writes, *made.writes))
        asked = quantization.in_pod(quantized)
    report = resolution.report
    if report is None or ADAPTER in report.config or not report.config:
        return _Outcome(want, changes, resolution, None, None, None, base)
    target = _target(observed, decoder, report, resolved(asked, report), defaults, base if quantized else None)
    if (paused_now and target not in _records(observed)) or changes:
        # Tasks would follow what is published, and nothing of it exists, or what exists is no pair for them.
        present = _present(observed)
        if present is None:
            return _Outcome(want, changes, resolution, None, None, None, base)
        target = present
    usable = {revision_of(d): revisions.available(d) for d in observed.children.deployments}
    work = observed.told.work if observed.told else {}
    fleet = Fleet(observed.live, observed.key, observed.children, target, _current(observed), usable, work)
    # A task is moved by its own new prefill pods; until then one pod that reads its KV has to stay, if there is room
    # for two.
    limits = revisions.limits(decoder.spec.rollout, want)
    keep = 1 if _unmoved(observed, target) and want.count + limits.surge > 1 else 0
    rolled = revisions.roll(
        fleet, want, decoder.spec.rollout, uris={source.uri, *([quantized.output_uri] if quantized else ())}, keep=keep
    )
    return _Outcome(want, changes, resolution, target, fleet, rolled, base)


def _current(observed: ObservedDecoder) -> str:
    return str(status_of(observed.live).get("currentRevision") or "")


def _weights(decoder: SharedDecoder) -> Weights:
    """The checkpoint as it stands in a pod."""
    source, given = decoder.spec.model, GivenVolumes.of(decoder.spec.template.spec)
    return model_weights(source.uri, source.credentials_secret_ref.name if source.credentials_secret_ref else "", given)


def _target(
    observed: ObservedDecoder,
    decoder: SharedDecoder,
    report: ResolverReport,
    in_pod: Weights,
    defaults: Defaults,
    base: ResolverReport | None,
) -> DecoderRevision:
    """The revision that the spec asks for: the recorded one where it was built before."""
    spec = decoder.spec
    engine = _engine(observed, decoder, report, defaults)
    revision = revision_hash(
        "decoder",
        {
            "form": FORM,
            "engine": engine.model_dump(mode="json"),
            "weights": [report.resolved_uri, report.digest, in_pod.secret],
            "template": spec.template.given(),
            "drain": spec.rollout.drain_timeout_seconds,
            "deadline": spec.rollout.progress_deadline_seconds,
            **asked_download(spec.model),
            **asked_secrets(defaults),
        },
    )
    known = _records(observed)
    found = next((record for record in known if record.revision == revision), None)
    if found is not None:
        return found
    kv = fingerprint(report.config, report.tokenizer_hash, engine.contract())
    pod = EnginePod(
        image=engine.image,
        pull_policy=defaults.pull_policy,
        fetcher=defaults.fetcher.told(spec.model.download),
        settings=worker_settings("decode", engine, kv, spec.rollout.drain_timeout_seconds),
        weights=[in_pod],
        labels=labels.pod_labels(observed.key, revision, kv),
        start_deadline_seconds=spec.rollout.progress_deadline_seconds,
        overlay=spec.template.to_wire(),
        key_secret=defaults.engine_key,
        tls_secret=defaults.engine_tls,
    )
    return DecoderRevision(
        revision=revision,
        engine=engine,
        report=report,
        secret=in_pod.secret,
        base=base,
        base_secret=_weights(decoder).secret if base else "",
        decoder_digest=decoder_digest(report.digest),
        kv_fingerprint=kv,
        template=template(pod),
    )


def _records(observed: ObservedDecoder) -> list[DecoderRevision]:
    return records.newest(observed.children.records, DecoderRevision)


def _present(observed: ObservedDecoder) -> DecoderRevision | None:
    """The revision that was published last; after a lost status the newest one."""
    known = _records(observed)
    wanted = status_of(observed.live).get("updateRevision")
    return next((record for record in known if record.revision == wanted), known[0] if known else None)


def _engine(observed: ObservedDecoder, decoder: SharedDecoder, report: ResolverReport, defaults: Defaults) -> Engine:
    """Without ``engine.image`` the present revision's image stays, so that a new operator rolls no pool, unless that is
    asked for."""
    spec = decoder.spec.engine
    present = None if decoder.spec.rollout.engine_upgrade == "Automatic" else _present(observed)
    return Engine(
        image=spec.image or (present.engine.image if present else defaults.engine_image),
        dtype=spec.dtype,
        kv_cache_dtype=spec.kv_cache_dtype,
        block_size=spec.block_size,
        max_model_len=spec.context_length(report.config.get(CONTEXT_LIMIT)),
        tensor_parallel_size=spec.tensor_parallel_size,
        extra_args=tuple(sorted(spec.extra_args, key=lambda argument: argument.name)),
    )


def _unmoved(observed: ObservedDecoder, target: DecoderRevision) -> list[str]:
    """Tasks (namespace/name) that route here and still make KV of another format than the target reads."""
    digest = target.kv_fingerprint.digest
    return [user.name for user in observed.users if user.routes and user.kv_digest != digest]


def _verdicts(observed: ObservedDecoder, decoder: SharedDecoder, outcome: _Outcome) -> list[Verdict]:
    verdicts = [Verdict(ConditionType.ACCEPTED, "True", Reason.ACCEPTED), outcome.resolution.verdict]
    verdicts.append(_contract_verdict(outcome))
    verdicts.append(_available(observed, decoder, outcome))
    if outcome.fleet is not None and outcome.rolled is not None:
        verdicts.append(_progress(observed, outcome.want, outcome.fleet, outcome.rolled))
    verdicts += outcome.want.verdicts
    verdicts += paused(spec_paused=decoder.spec.paused)
    return verdicts


def _progress(observed: ObservedDecoder, want: Wanted, fleet: Fleet, rolled: Rolled) -> Verdict:
    verdict = revisions.progress(fleet, rolled, want.count)
    target = fleet.target
    waiting = _unmoved(observed, target) if isinstance(target, DecoderRevision) and not rolled.done else []
    if not waiting:
        return verdict
    message = f"{verdict.message}; tasks that have not moved to the new KV format: {deletion.listed(waiting)}"
    return Verdict(verdict.type, verdict.status, verdict.reason, message)


def _contract_verdict(outcome: _Outcome) -> Verdict:
    type_ = ConditionType.KV_CONTRACT_KNOWN
    if outcome.changes:
        return Verdict(type_, "False", Reason.TEMPLATE_CHANGES_CONTRACT, changes_contract(outcome.changes))
    if outcome.target is not None:
        return Verdict(type_, "True", Reason.KV_CONTRACT_KNOWN, outcome.target.kv_fingerprint.digest)
    report = outcome.resolution.report
    if report is None:
        return Verdict(type_, "Unknown", Reason.PENDING, "waits for WeightsReady")
    what = "is a LoRA adapter, not a checkpoint" if ADAPTER in report.config else "has no readable config.json"
    return Verdict(type_, "False", Reason.KV_CONTRACT_UNKNOWN, f"{report.resolved_uri} {what}")


def _available(observed: ObservedDecoder, decoder: SharedDecoder, outcome: _Outcome) -> Verdict:
    """Enough decode pods of any revision."""
    type_ = ConditionType.AVAILABLE
    if outcome.fleet is None:
        return Verdict(type_, "Unknown", Reason.PENDING, "waits for KVContractKnown")
    want = outcome.want.count
    have = sum(outcome.fleet.usable.values())
    least = want - revisions.limits(decoder.spec.rollout, outcome.want).unavailable
    if have >= max(least, min(want, 1)):
        return Verdict(type_, "True", Reason.MINIMUM_REPLICAS_AVAILABLE, f"{have} of {want} decode pods are available")
    return _missing(type_, f"{have} of {want} decode pods are available", observed.children)


def _missing(type_: ConditionType, text: str, children: Children) -> Verdict:
    engines = [pod for pod in children.pods if is_engine(pod)]
    why = pods.problem(engines) or pods.refused(children.deployments) or pods.waiting(engines, children.progress)
    if why is not None:
        return Verdict(type_, "False", why[0], f"{text}; {why[1]}")
    return Verdict(type_, "False", Reason.MINIMUM_REPLICAS_UNAVAILABLE, text)


def _model_status(report: ResolverReport | None, target: DecoderRevision | None) -> DecoderModelStatus:
    if report is None:
        return DecoderModelStatus()
    quantized = target.report.digest if target and target.base else ""
    return DecoderModelStatus(resolved_uri=report.resolved_uri, digest=report.digest, quantized_digest=quantized)


def _fields(observed: ObservedDecoder, outcome: _Outcome) -> dict[str, object]:
    """The status without its conditions and generation."""
    report, target, fleet = outcome.base, outcome.target, outcome.fleet
    made = SharedDecoderStatus(
        selector=labels.selector_text(labels.pool_selector(observed.key)),
        model=_model_status(report, target),
        decoder_digest=target.decoder_digest if target else "",
        kv_fingerprint=target.kv_fingerprint if target else KVFingerprint(),
        update_revision=target.revision if target else "",
        current_revision=revisions.current(fleet, outcome.rolled) if fleet and outcome.rolled else _current(observed),
        attached_models=sum(user.attached for user in observed.users),
        draining_replicas=revisions.draining(observed.children),
    ).to_wire()
    for computed in ("conditions", "observedGeneration"):
        made.pop(computed)
    if outcome.want.status is not None:
        made["scaling"] = outcome.want.status
    return made | (revisions.counts(fleet) if fleet else {})
