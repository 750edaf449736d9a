"""What to do about a PrefillPool. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sunfleet_api import names
from sunfleet_api.checkpoint import ADAPTER
from sunfleet_api.conditions import POOL_ROLL_UP, ConditionType, Reason
from sunfleet_api.digests import KVFingerprint
from sunfleet_api.fingerprint import revision_hash
from sunfleet_api.prefill import Prefill
from sunfleet_api.prefill_pool import PoolModelStatus, PrefillPool, PrefillPoolStatus
from sunfleet_api.sun_model import SunModel, SunModelSpec
from sunfleet_api.worker import ResolverReport
from sunfleet_operator import records
from sunfleet_operator.build import labels, network
from sunfleet_operator.build.adapters import Supply
from sunfleet_operator.build.engine_pod import FORM, EnginePod, template
from sunfleet_operator.build.volumes import GivenVolumes
from sunfleet_operator.build.weights import Weights, model_weights, resolved
from sunfleet_operator.observed import Defaults, ObservedModel, ObservedPool
from sunfleet_operator.plan import conditions, pods, replicas, revisions, seating, status, task, weights
from sunfleet_operator.plan.actions import Plan
from sunfleet_operator.plan.common import (
    TAKEN_SECONDS,
    asked_download,
    asked_secrets,
    ignored,
    paused,
    refused,
    soonest,
    worker_settings,
)
from sunfleet_operator.plan.conditions import Verdict
from sunfleet_operator.plan.opening import opened
from sunfleet_operator.plan.replicas import Wanted
from sunfleet_operator.plan.revisions import Fleet, Rolled
from sunfleet_operator.plan.seating import Seating
from sunfleet_operator.records import DecoderRevision, ModelRevision
from sunfleet_operator.references import decoder_of
from sunfleet_operator.types import is_terminating, revision_of, spec_of


@dataclass(frozen=True)
class _Outcome:
    """The parts of a plan that the status tells of."""

    want: Wanted
    standing: task.Standing
    resolution: weights.Resolution
    fits: Verdict
    seating: Seating
    fleet: Fleet | None
    rolled: Rolled | None
    known: tuple[ModelRevision, ...]


def plan(observed: ObservedPool, defaults: Defaults, now: datetime, *, refusal: str = "") -> Plan:
    """Resolve the base, check it against the decoder, keep the pods, and keep the tasks' adapters in them."""
    if is_terminating(observed.live):
        return Plan()
    begun = opened(observed, PrefillPool, ConditionType.RESOLVED_REFS, now)
    if isinstance(begun, Plan):
        return begun
    observed, pool, made = begun.observed, begun.resource, begun.made
    want = replicas.wanted(_scaling_facts(observed, pool), now)
    outcome = _decide(observed, pool, defaults, want, now)
    taken = revisions.taken(observed.live, observed.key, observed.children)
    verdicts = refused([*_verdicts(observed, pool, outcome), *made.verdicts], refusal or taken)
    verdicts.append(conditions.ready(verdicts, POOL_ROLL_UP, zero=want.count == 0))
    held, rolled, seats = pool.spec.paused, outcome.rolled, outcome.seating
    fellows = network.of_pool(observed.key, decoder_of(observed.live), pool.spec.allowed_models.namespaces)
    beside = revisions.pool_writes(observed.live, observed.key, observed.children, defaults.visitors, fellows)
    writes = (*made.writes, *outcome.resolution.writes, *beside, *(rolled.before if rolled else ()))
    return Plan(
        before=() if held else (*writes, *seats.announces, *seats.loads),
        status=status.write(observed.live, _fields(observed, outcome), verdicts, now),
        after=() if held or rolled is None else rolled.after,
        events=(*status.events(observed.live, verdicts), *(() if held else want.events)),
        requeue_after=soonest(
            TAKEN_SECONDS if taken else outcome.resolution.requeue_after, want.requeue_after, seats.look_again
        ),
        effective=made.live if made.used else None,
        faults=seats.faults,
    )


def _scaling_facts(observed: ObservedPool, pool: PrefillPool) -> replicas.Facts:
    spec = pool.spec
    return replicas.Facts(
        observed.live, spec.replicas, spec.autoscaling, observed.children.deployments, observed.told,
        budgeted=bool(observed.decoder and spec_of(observed.decoder).get("gpuBudget")),
    )  # fmt: skip


def _as_task(pool: PrefillPool) -> SunModel:
    """The pool's pods as those of a task whose prefill module is the base itself."""
    spec = pool.spec
    made = SunModelSpec(decoder_ref=spec.decoder_ref, prefill=Prefill(weights=spec.model), template=spec.template)
    return SunModel(metadata=pool.metadata, spec=made)


def _decide(observed: ObservedPool, pool: PrefillPool, defaults: Defaults, want: Wanted, now: datetime) -> _Outcome:
    known = records.newest(observed.children.records, ModelRevision)
    serving = next((record for record in known if record.revision == revisions.serving(observed.live, known)), None)
    as_task, view = observed.as_task(observed.live), _as_task(pool)
    here = "/".join(pool.spec.decoder_ref.resolve(observed.key.namespace))
    standing = task.standing(as_task, view, elsewhere=serving is not None and serving.decoder != here)
    source = pool.spec.model
    question = weights.Question(
        source, _base(pool), defaults.fetcher.told(source.download), weights.inherited(pool.spec.template.spec)
    )
    resolution = weights.resolve(
        observed.live, observed.key, observed.children, question, paused=pool.spec.paused, now=now
    )
    fits = _fits(as_task, view, standing.contract, resolution.report)
    target = None
    if standing.contract and resolution.report and fits.status == "True":
        target = _target(observed, pool, standing.contract, resolution.report, defaults, known)
        if pool.spec.paused and target not in known:
            target = None
    if target is not None:
        known = [target, *(record for record in known if record.revision != target.revision)]
    seats = seating.seat(observed, pool.spec.lora, GivenVolumes.of(pool.spec.template.spec))
    fleet = _fleet(observed, as_task, target, serving, seats)
    rolled = revisions.roll(fleet, want, pool.spec.rollout, uris={source.uri}) if fleet else None
    return _Outcome(want, standing, resolution, fits, seats, fleet, rolled, tuple(known))


def _fits(
    as_task: ObservedModel, view: SunModel, contract: DecoderRevision | None, report: ResolverReport | None
) -> Verdict:
    if report is not None and ADAPTER in report.config:
        text = f"{report.resolved_uri} is a LoRA adapter: name the base checkpoint under spec.model"
        return Verdict(ConditionType.KV_COMPATIBLE, "False", Reason.KV_MISMATCH, text)
    return task.compatible(as_task, view, contract, report)


def _base(pool: PrefillPool) -> Weights:
    source, given = pool.spec.model, GivenVolumes.of(pool.spec.template.spec)
    return model_weights(source.uri, source.credentials_secret_ref.name if source.credentials_secret_ref else "", given)


def _target(
    observed: ObservedPool,
    pool: PrefillPool,
    contract: DecoderRevision,
    report: ResolverReport,
    defaults: Defaults,
    known: Sequence[ModelRevision],
) -> ModelRevision:
    """The revision that the spec asks for: the recorded one where it was built before. No adapter is part of it."""
    spec, base, kv = pool.spec, resolved(_base(pool), report), contract.kv_fingerprint
    decoder = "/".join(spec.decoder_ref.resolve(observed.key.namespace))
    drain, deadline = spec.rollout.drain_timeout_seconds, spec.rollout.progress_deadline_seconds
    lora = spec.lora.model_dump(mode="json", exclude={"copies"})
    revision = revision_hash(
        "pool",
        {
            "form": FORM,
            "engine": contract.engine.model_dump(mode="json"),
            "kv": kv.digest,
            "decoder": decoder,
            "decoderDigest": contract.decoder_digest,
            "module": [base.uri, base.path, base.secret, report.digest],
            "lora": lora,
            "template": spec.template.given(),
            "drain": drain,
            "deadline": deadline,
            **asked_download(spec.model),
            **asked_secrets(defaults),
        },
    )
    found = next((record for record in known if record.revision == revision), None)
    if found is not None:
        return found
    settings = worker_settings(
        "prefill", contract.engine, kv, drain,
        adapters_path=names.ADAPTERS_PATH, max_lora_rank=spec.lora.max_rank, max_loras=spec.lora.per_batch,
        max_loaded_loras=spec.lora.max_loaded_per_pod, lora_target_modules=spec.lora.target_modules,
    )  # fmt: skip
    secret = spec.lora.credentials_secret_ref
    pod = EnginePod(
        image=contract.engine.image,
        pull_policy=defaults.pull_policy,
        fetcher=defaults.fetcher.told(spec.model.download),
        weights=[base],
        settings=settings,
        labels=labels.pod_labels(observed.key, revision, kv),
        start_deadline_seconds=deadline,
        overlay=spec.template.to_wire(),
        key_secret=defaults.engine_key,
        tls_secret=defaults.engine_tls,
        supply=Supply(secret.name if secret else "", spec.lora.claims),
    )
    return ModelRevision(
        revision=revision,
        decoder=decoder,
        decoder_digest=contract.decoder_digest,
        digest=report.digest,
        kv_fingerprint=kv,
        template=template(pod),
    )


def _fleet(
    observed: ObservedPool,
    as_task: ObservedModel,
    target: ModelRevision | None,
    serving: ModelRevision | None,
    seats: Seating,
) -> Fleet | None:
    """Without a new revision, or before the first decode pod of its KV format, the serving one is kept as it is."""
    readable = revisions.formats(as_task.decoder_deployments)
    begun = target is not None and any(revision_of(d) == target.revision for d in observed.children.deployments)
    early = target is not None and serving is not None and not begun and target.kv_fingerprint.label not in readable
    wanted = serving if target is None or early else target
    if wanted is None:
        return None
    current = serving.revision if serving else ""
    usable = _usable(observed, current, wanted.revision, seats.full)
    work = observed.told.work if observed.told else {}
    return Fleet(observed.live, observed.key, observed.children, wanted, current, usable, work)


def _usable(observed: ObservedPool, current: str, target: str, full: Mapping[str, int]) -> dict[str, int]:
    """Pods that can serve, per revision. Those of a revision that replaces another one count once they hold their
    adapters: else the old ones would go while some task has nowhere else to go."""
    usable: dict[str, int] = {}
    for live in observed.children.deployments:
        revision, there = revision_of(live), revisions.available(live)
        replaces = current and revision == target != current
        usable[revision] = min(there, full.get(revision, 0)) if replaces else there
    return usable


def _verdicts(observed: ObservedPool, pool: PrefillPool, outcome: _Outcome) -> list[Verdict]:
    verdicts = [*outcome.standing.verdicts, outcome.resolution.verdict, outcome.fits]
    verdicts += [_decoder_ready(observed, outcome), _prefill_ready(observed, pool, outcome), outcome.seating.verdict]
    if outcome.fleet is not None and outcome.rolled is not None:
        verdicts.append(revisions.progress(outcome.fleet, outcome.rolled, outcome.want.count))
    verdicts += outcome.want.verdicts
    return [*verdicts, *ignored(pool.spec, observed.decoder), *paused(spec_paused=pool.spec.paused)]


def _decoder_ready(observed: ObservedPool, outcome: _Outcome) -> Verdict:
    type_ = ConditionType.DECODER_READY
    target = outcome.fleet.target if outcome.fleet else None
    if not isinstance(target, ModelRevision):
        return Verdict(type_, "Unknown", Reason.PENDING, "waits for the decoder's KV contract")
    if target.kv_fingerprint.label in revisions.formats(observed.decoder_deployments):
        return Verdict(type_, "True", Reason.MINIMUM_REPLICAS_AVAILABLE, "")
    message = f"no decode pod of SharedDecoder {target.decoder} that reads this pool's KV is available"
    return Verdict(type_, "False", Reason.DECODER_NOT_READY, f"{message}: see its conditions")


def _prefill_ready(observed: ObservedPool, pool: PrefillPool, outcome: _Outcome) -> Verdict:
    type_, fleet, want = ConditionType.PREFILL_READY, outcome.fleet, outcome.want.count
    if fleet is None:
        return Verdict(type_, "Unknown", Reason.PENDING, "no revision to run yet")
    if want == 0:
        return Verdict(type_, "True", Reason.SCALED_TO_ZERO, "no replicas are wanted")
    have = sum(revisions.available(live) for live in observed.children.deployments)
    text = f"{have} of {want} prefill pods are available"
    if have >= max(1, want - revisions.limits(pool.spec.rollout, outcome.want).unavailable):
        return Verdict(type_, "True", Reason.MINIMUM_REPLICAS_AVAILABLE, text)
    new = fleet.pods(fleet.target.revision)
    reason, why = (
        pods.problem(new) or pods.waiting(new, observed.children.progress) or (Reason.MINIMUM_REPLICAS_UNAVAILABLE, "")
    )
    return Verdict(type_, "False", reason, f"{text}; {why}" if why else text)


def _fields(observed: ObservedPool, outcome: _Outcome) -> dict[str, object]:
    """The status without its conditions and generation."""
    report, fleet, known = outcome.resolution.report, outcome.fleet, list(outcome.known)
    current = (
        revisions.current(fleet, outcome.rolled)
        if fleet and outcome.rolled
        else revisions.serving(observed.live, known)
    )
    made = PrefillPoolStatus(
        selector=labels.selector_text(labels.pool_selector(observed.key)),
        current_revision=current,
        update_revision=fleet.target.revision if fleet else "",
        model=PoolModelStatus(resolved_uri=report.resolved_uri, digest=report.digest) if report else PoolModelStatus(),
        kv_fingerprint=next((r.kv_fingerprint for r in known if r.revision == current), KVFingerprint()),
        attached_models=sum(user.attached == observed.key for user in observed.users),
        wanted_adapters=outcome.seating.wanted,
        loaded_adapters=outcome.seating.loaded,
    ).to_wire()
    for computed in ("conditions", "observedGeneration"):
        made.pop(computed)
    if outcome.want.status is not None:
        made["scaling"] = outcome.want.status
    return made | (revisions.counts(fleet) if fleet else {})
