"""What to do about a SunModel whose adapter the pods of a PrefillPool hold: no pods, an adapter in the status. Pure.

The pool reads ``status.adapters`` and loads them; this plan reads the pool's pods and routes to what they have loaded.
A new revision gets the requests once some pod has loaded it and a decode pod reads that pod's KV.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from sunfleet_api import names
from sunfleet_api.checkpoint import ADAPTER
from sunfleet_api.conditions import MODEL_ROLL_UP, ConditionType, Reason
from sunfleet_api.digests import KVFingerprint
from sunfleet_api.fingerprint import revision_hash
from sunfleet_api.inactive import inactive_fields
from sunfleet_api.pooling import announced
from sunfleet_api.prefill_pool import Lora, PrefillPool
from sunfleet_api.sun_model import PooledAdapter, PrefillModelStatus, SunModel, SunModelStatus
from sunfleet_api.weights import parse_uri
from sunfleet_api.worker import ResolverReport
from sunfleet_operator import records
from sunfleet_operator.build import labels
from sunfleet_operator.build.adapters import mounted_at
from sunfleet_operator.build.volumes import GivenVolumes
from sunfleet_operator.build.weights import MOUNTED_SCHEMES, Weights, adapter_weights, resolved
from sunfleet_operator.observed import Defaults, ObservedModel
from sunfleet_operator.plan import conditions, pooled_check, revisions, status, task, traffic, verify, weights
from sunfleet_operator.plan.actions import Delete, Plan, Write
from sunfleet_operator.plan.common import ignored, paused, refused, soonest
from sunfleet_operator.plan.conditions import Verdict
from sunfleet_operator.plan.profiles import Effective
from sunfleet_operator.plan.revisions import Fleet
from sunfleet_operator.plan.verify import Check, counting, verified
from sunfleet_operator.records import DecoderRevision, ModelRevision
from sunfleet_operator.references import pool_of
from sunfleet_operator.types import (
    Json,
    Key,
    Ref,
    is_terminating,
    labels_of,
    metadata,
    ready_since,
    revision_of,
    status_of,
)

_REFS = ConditionType.RESOLVED_REFS


@dataclass(frozen=True)
class _Pool:
    """The pool that is referred to, as far as it can be used; ``verdict`` speaks of all references."""

    verdict: Verdict
    spec: PrefillPool | None = None
    asleep: bool = False  # no pods are wanted

    @property
    def lora(self) -> Lora:
        return self.spec.spec.lora if self.spec else Lora()

    @property
    def given(self) -> GivenVolumes:
        return GivenVolumes.of(self.spec.spec.template.spec) if self.spec else GivenVolumes()


@dataclass(frozen=True)
class _Outcome:
    """The parts of a plan that the status tells of. ``target`` is wanted, ``current`` serves after this step, and the
    spec asks for ``update``: wrong answers keep it from being wanted."""

    resolution: weights.Resolution
    verdicts: tuple[Verdict, ...]
    check: Check
    routes: list[dict[str, Any]]
    current: str
    target: ModelRevision | None
    update: str
    pods: int  # that serve it
    known: tuple[ModelRevision, ...]
    before: tuple[Write, ...]
    after: tuple[Write, ...]


def plan(
    observed: ObservedModel, model: SunModel, made: Effective, defaults: Defaults, now: datetime, *, refusal: str = ""
) -> Plan:
    """Resolve, check against decoder and pool, say which adapter is wanted, publish traffic."""
    pool = _pool(observed, model)
    outcome = _decide(observed, model, pool, defaults, now)
    verdicts = [
        *outcome.verdicts,
        *made.verdicts,
        *ignored((*inactive_fields(model.spec), *(["spec.canary"] if model.spec.canary else []))),
        *paused(spec_paused=model.spec.paused),
    ]
    verdicts = refused(verdicts, refusal)
    counted = counting(model, verdicts, none=pool.asleep)
    verdicts.append(conditions.ready(counted, MODEL_ROLL_UP, zero=pool.asleep))
    held, check = model.spec.paused, outcome.check
    return Plan(
        before=() if held else (*made.writes, *outcome.before),
        status=status.write(observed.live, _fields(observed, model, outcome), verdicts, now),
        after=() if held else outcome.after,
        events=status.events(observed.live, verdicts),
        requeue_after=soonest(outcome.resolution.requeue_after, check.requeue_after),
        effective=made.live if made.used else None,
        checks=(check.result,) if check.result and not held else (),
    )


def _pool(observed: ObservedModel, model: SunModel) -> _Pool:
    """May the task share that pool, and do both have one decoder?"""
    key = pool_of(observed.live)
    name = f"{key.namespace}/{key.name}" if key else ""

    def no(reason: Reason, message: str) -> _Pool:
        return _Pool(Verdict(_REFS, "False", reason, message))

    if observed.pool is None:
        text = f"there is no PrefillPool {name} (yet)"
        if not observed.pool_served:
            text = f"this operator does not serve the namespace of PrefillPool {name}"
        return no(Reason.POOL_NOT_FOUND, text)
    try:
        pool = PrefillPool.parse(observed.pool)
    except ValidationError:
        return no(
            Reason.INVALID_SPEC, f"the spec of PrefillPool {name} cannot be read: its condition Accepted says why"
        )
    space = pool.metadata.namespace
    if not pool.spec.allowed_models.allows(
        own_namespace=space, namespace=observed.key.namespace, namespace_labels=dict(observed.namespace_labels)
    ):
        text = f"PrefillPool {name} does not allow SunModels of namespace {observed.key.namespace}"
        return no(Reason.NOT_ALLOWED_BY_POOL, f"{text}: its owner has to widen spec.allowedModels.namespaces")
    theirs, ours = pool.spec.decoder_ref.resolve(space), model.spec.decoder_ref.resolve(observed.key.namespace)
    if theirs != ours:
        text = f"PrefillPool {name} is for SharedDecoder {'/'.join(theirs)}, this task for {'/'.join(ours)}"
        return no(Reason.POOL_OF_OTHER_DECODER, f"{text}: they must be the same")
    fault = _unreachable(observed, model, pool, name)
    if fault is not None:
        return _Pool(fault)
    ready: Json = next((c for c in pool.status.to_wire()["conditions"] if c["type"] == "Ready"), {})
    return _Pool(Verdict(_REFS, "True", Reason.RESOLVED, name), pool, ready.get("reason") == Reason.SCALED_TO_ZERO)


def _unreachable(observed: ObservedModel, model: SunModel, pool: PrefillPool, name: str) -> Verdict | None:
    """What is mounted must be mounted in the pool's pods, and means the same there only in one namespace."""
    uri, given = model.spec.prefill.source.uri, GivenVolumes.of(pool.spec.template.spec)
    scheme = parse_uri(uri).scheme
    if scheme not in MOUNTED_SCHEMES:
        return None
    same = pool.metadata.namespace == observed.key.namespace
    if same and mounted_at(uri, pool.spec.lora.claims, given) is not None:
        return None
    if not same:
        text = f"the pods of PrefillPool {name} cannot mount {uri}, a volume of namespace {observed.key.namespace}"
        return Verdict(_REFS, "False", Reason.VOLUME_CLAIM_NOT_FOUND, f"{text}: put it where pods can download it")
    if scheme == "pvc":
        text = f"add claim {parse_uri(uri).location} to spec.lora.claims of PrefillPool {name}"
        return Verdict(_REFS, "False", Reason.VOLUME_CLAIM_NOT_FOUND, f"its pods do not mount {uri}: {text}")
    text = f"mount the volume that holds it in spec.template of PrefillPool {name}, into the container named engine"
    return Verdict(_REFS, "False", Reason.VOLUME_NOT_FOUND, f"its pods do not see {uri}: {text}")


def _decide(observed: ObservedModel, model: SunModel, pool: _Pool, defaults: Defaults, now: datetime) -> _Outcome:
    known = records.newest(observed.children.records, ModelRevision)
    current = _current(observed, known)
    serving = next((record for record in known if record.revision == current), None)
    here = "/".join(model.spec.decoder_ref.resolve(observed.key.namespace))
    moving = serving is not None and (serving.decoder != here or serving.pool != _name(pool_of(observed.live)))
    standing = task.standing(observed, model, elsewhere=moving)
    accepted, refs = standing.verdicts
    refs = refs if refs.status != "True" else pool.verdict
    shut = standing.refused or (refs.reason == Reason.NOT_ALLOWED_BY_POOL and not moving)
    resolution = _resolve(observed, model, pool, defaults, now, refused=shut)
    contract = standing.contract if pool.spec else None
    fits = _fits(task.compatible(observed, model, contract, resolution.report), pool, resolution.report)
    target = _target(observed, model, contract, resolution.report) if fits.status == "True" else None
    if model.spec.paused and target not in known:
        target = None
    check = _check(observed, model, pool, target, resolution.report, defaults, serving=_is(target, current), now=now)
    wanted = serving if target is None or (check.rejected and serving is not None) else target
    if target is not None:
        known = [target, *(record for record in known if record.revision != target.revision)]
    usable = _usable(observed, known)
    gone = shut or (refs.reason == Reason.POOL_NOT_FOUND and not moving) or standing.no_traffic
    free = check.cleared or wanted is not target
    routes, current = _routes(observed, model, known, usable, current, wanted, free=free, none=gone)
    done = wanted is not None and current == wanted.revision
    fleet = Fleet(observed.live, observed.key, observed.children, wanted, current, usable) if wanted else None
    verdicts = (
        accepted, refs, resolution.verdict, fits, _decoder_ready(observed, contract),
        _prefill_ready(observed, pool, usable.get(wanted.revision, 0) if wanted else 0, wanted),
        *([_progress(wanted, done=done or pool.asleep, loaded=bool(usable.get(wanted.revision)))] if wanted else ()),
        *verified(check, serving),
    )  # fmt: skip
    update = target or wanted
    there = wanted is not None and wanted.pool == _name(pool_of(observed.live))  # else its own pods, or others', serve
    checking = (*verify.stale_jobs(observed.children, (check,)), *check.writes)
    return _Outcome(
        resolution, verdicts, check, routes, current, wanted, update.revision if update else "",
        usable.get(current, 0), tuple(known),
        before=(*resolution.writes, *(revisions.record_writes(fleet) if fleet else ()), *checking),
        after=tuple(_leave(observed, model, fleet, shut=shut)) if (fleet and done and there) or shut else (),
    )  # fmt: skip


def _is(record: ModelRevision | None, revision: str) -> bool:
    return record is not None and record.revision == revision


def _check(
    observed: ObservedModel,
    model: SunModel,
    pool: _Pool,
    target: ModelRevision | None,
    report: ResolverReport | None,
    defaults: Defaults,
    *,
    serving: bool,
    now: datetime,
) -> Check:
    """Golden prompts of the revision that is asked for, on those pods that have it."""
    if target is None or report is None or pool.spec is None:
        return Check(cleared=True)
    module, pod = _files(observed, model, pool.spec, pool.given)
    return pooled_check.checked(
        observed, model, target, resolved(module, report), pod, defaults, serving=serving, now=now
    )


def _files(
    observed: ObservedModel, model: SunModel, pool: PrefillPool, given: GivenVolumes
) -> tuple[Weights, Mapping[str, Any]]:
    """The adapter's files as a Job of the task finds them, and what its pod has of the pool's in the same namespace."""
    source = model.spec.prefill.source
    secret = source.credentials_secret_ref.name if source.credentials_secret_ref else ""
    near = pool.metadata.namespace == observed.key.namespace
    return adapter_weights(source.uri, secret, given), weights.inherited(pool.spec.template.spec) if near else {}


def _resolve(
    observed: ObservedModel, model: SunModel, pool: _Pool, defaults: Defaults, now: datetime, *, refused: bool
) -> weights.Resolution:
    if refused or pool.spec is None:
        known = next(iter(records.newest(observed.children.records, records.WeightsRecord)), None)
        waiting = Verdict(ConditionType.WEIGHTS_READY, "Unknown", Reason.PENDING, "not looked at before ResolvedRefs")
        same = known is not None and known.uri == model.spec.prefill.source.uri and not refused
        return weights.Resolution(known.report if known and same else None, waiting)
    source, (module, pod) = model.spec.prefill.source, _files(observed, model, pool.spec, pool.given)
    question = weights.Question(source, module, defaults.fetcher.told(source.download), pod)
    held = model.spec.paused
    return weights.resolve(observed.live, observed.key, observed.children, question, paused=held, now=now)


def _fits(verdict: Verdict, pool: _Pool, report: ResolverReport | None) -> Verdict:
    """Also what the pool's pods were started for."""
    if verdict.status != "True" or report is None:
        return verdict
    facts, lora = report.config.get(ADAPTER) or {}, pool.lora
    faults = []
    if (rank := facts.get("rank") or 0) > lora.max_rank:
        faults.append(f"it has rank {rank}, but the pool takes up to lora.maxRank {lora.max_rank}")
    extra = sorted(set(facts.get("target_modules") or ()) - set(lora.target_modules)) if lora.target_modules else []
    if extra:
        faults.append(f"it changes {', '.join(extra)}, which lora.targetModules of the pool does not name")
    if not faults:
        return verdict
    return Verdict(ConditionType.KV_COMPATIBLE, "False", Reason.ADAPTER_NOT_SUPPORTED, "; ".join(faults))


def _target(
    observed: ObservedModel, model: SunModel, contract: DecoderRevision | None, report: ResolverReport | None
) -> ModelRevision | None:
    """The revision that the spec asks for. What the pool's pods are is no part of it: they change by themselves."""
    if contract is None or report is None:
        return None
    pool, decoder = _name(pool_of(observed.live)), "/".join(model.spec.decoder_ref.resolve(observed.key.namespace))
    facts = [pool, decoder, contract.decoder_digest, report.resolved_uri, report.digest]
    return ModelRevision(
        revision=revision_hash("pooled", {"adapter": facts}),
        decoder=decoder,
        decoder_digest=contract.decoder_digest,
        digest=report.digest,
        kv_fingerprint=contract.kv_fingerprint,
        pool=pool,
        uri=report.resolved_uri,
    )


def _name(pool: Key | None) -> str:
    return f"{pool.namespace}/{pool.name}" if pool else ""


def _current(observed: ObservedModel, known: Sequence[ModelRevision]) -> str:
    name = str(status_of(observed.live).get("currentRevision") or "")
    return name if any(record.revision == name for record in known) else ""


def _usable(observed: ObservedModel, known: Iterable[ModelRevision]) -> dict[str, int]:
    """Pods per revision that have it and whose KV some decode pod reads.

    One of another pool, which is not observed, counts by itself: it served until now.
    """
    here, readable = _name(pool_of(observed.live)), revisions.formats(observed.decoder_deployments)
    usable: dict[str, int] = {}
    for record in known:
        if not record.pool:
            mine = [d for d in observed.children.deployments if revision_of(d) == record.revision]
            usable[record.revision] = sum(revisions.available(live) for live in mine)
        elif record.pool != here:
            usable[record.revision] = 1
        else:
            name = pooled_check.adapter_of(observed.key, record)
            usable[record.revision] = sum(_serves(pod, name, readable) for pod in observed.pool_pods)
    return usable


def _serves(pod: Json, adapter: str, readable: frozenset[str]) -> bool:
    if is_terminating(pod) or ready_since(pod) is None:
        return False
    fits = labels_of(pod).get(names.LABEL_KV_FINGERPRINT) in readable
    return fits and adapter in announced(metadata(pod), status_of(pod))


def _routes(
    observed: ObservedModel,
    model: SunModel,
    known: Sequence[ModelRevision],
    usable: Mapping[str, int],
    current: str,
    wanted: ModelRevision | None,
    *,
    free: bool,
    none: bool,
) -> tuple[list[dict[str, Any]], str]:
    """``status.traffic``, and the revision that serves by itself after this step. ``free``: ``wanted`` may be it."""
    if model.spec.paused and not none:
        return [dict(entry) for entry in status_of(observed.live).get("traffic") or ()], current
    if none or wanted is None:
        return [], current
    asleep = observed.pool is not None and _asleep(observed.pool)
    if (usable.get(wanted.revision) or asleep) and free:
        current = wanted.revision
    # Requests of a task that never had pods are held and bring some up, on which it is then checked.
    receives = current or (wanted.revision if asleep else "")
    percent = {receives: 100} if receives else {}
    uid = str(metadata(observed.live)["uid"])
    return [entry.to_wire() for entry in traffic.entries(observed.key, uid, percent, known)], current


def _asleep(pool: Json) -> bool:
    found = status_of(pool).get("conditions") or ()
    return any((c.get("type"), c.get("reason")) == ("Ready", str(Reason.SCALED_TO_ZERO)) for c in found)


def _leave(observed: ObservedModel, model: SunModel, fleet: Fleet | None, *, shut: bool) -> list[Write]:
    """Pods of its own that the task had before, old records; when it is refused, everything that runs."""
    gone: list[Write] = [Delete(Ref.of("Deployment", live)) for live in observed.children.deployments]
    if shut:
        return [*gone, *(Delete(Ref.of("Job", live)) for live in observed.children.jobs)]
    limit, uri = model.spec.rollout.revision_history_limit, model.spec.prefill.source.uri
    return [*gone, *(revisions.trim(fleet, limit, {uri}) if fleet else ())]


def _decoder_ready(observed: ObservedModel, contract: DecoderRevision | None) -> Verdict:
    type_ = ConditionType.DECODER_READY
    if contract is None:
        return Verdict(type_, "Unknown", Reason.PENDING, "waits for the decoder's KV contract")
    made = str(((status_of(observed.pool).get("kvFingerprint") or {}) if observed.pool else {}).get("digest") or "")
    kv = KVFingerprint(digest=made or contract.kv_fingerprint.digest)
    if kv.label in revisions.formats(observed.decoder_deployments):
        return Verdict(type_, "True", Reason.MINIMUM_REPLICAS_AVAILABLE, "")
    message = "no decode pod that reads this task's KV is available: see the conditions of its SharedDecoder"
    return Verdict(type_, "False", Reason.DECODER_NOT_READY, message)


def _prefill_ready(observed: ObservedModel, pool: _Pool, serving: int, wanted: ModelRevision | None) -> Verdict:
    """Whether some pod of the pool has the wanted adapter; else why not."""
    type_, name = ConditionType.PREFILL_READY, _name(pool_of(observed.live))
    if wanted is None:
        return Verdict(type_, "Unknown", Reason.PENDING, "no revision to load yet")
    if serving:
        text = f"{serving} pods of PrefillPool {name} have loaded it"
        return Verdict(type_, "True", Reason.MINIMUM_REPLICAS_AVAILABLE, text)
    if pool.asleep:
        return Verdict(
            type_, "True", Reason.SCALED_TO_ZERO, f"PrefillPool {name} has no pods; a request brings them up"
        )
    if observed.pool_fault is not None:
        return Verdict(type_, "False", observed.pool_fault.reason, observed.pool_fault.message)
    found: Json = status_of(observed.pool) if observed.pool else {}
    ready: Json = next((c for c in found.get("conditions") or () if c.get("type") == "Ready"), {})
    if ready.get("status") != "True" and not found.get("readyReplicas"):
        says = f"{ready.get('reason')}: {ready.get('message')}" if ready else "it has no status yet"
        return Verdict(
            type_, "False", Reason.MINIMUM_REPLICAS_UNAVAILABLE, f"PrefillPool {name} has no ready pod; {says}"
        )
    return Verdict(type_, "False", Reason.ADAPTER_LOADING, f"the pods of PrefillPool {name} are loading it")


def _progress(wanted: ModelRevision, *, done: bool, loaded: bool) -> Verdict:
    text = f"revision {wanted.revision}"
    if done:
        return Verdict(ConditionType.PROGRESSING, "False", Reason.ROLLOUT_COMPLETE, text)
    why = "is loaded, and waits for its golden prompts (Verified)" if loaded else "is not loaded by any pod yet"
    return Verdict(ConditionType.PROGRESSING, "True", Reason.ROLLING_OUT, f"{text} {why}")


def _fields(observed: ObservedModel, model: SunModel, outcome: _Outcome) -> dict[str, object]:
    """The status without its conditions and generation."""
    report, wanted = outcome.resolution.report, outcome.target
    theirs = (status_of(observed.pool).get("kvFingerprint") or {}) if observed.pool else {}
    module = PrefillModelStatus()
    if report is not None:
        module = PrefillModelStatus(
            resolved_uri=report.resolved_uri, digest=report.digest, tuned_against=report.tuned_against
        )
    made = SunModelStatus(
        model_name=model.model_name,
        replicas=outcome.pods,
        ready_replicas=outcome.pods,
        updated_replicas=outcome.pods if wanted and wanted.revision == outcome.current else 0,
        selector=labels.selector_text(labels.pool_selector(observed.key)),
        current_revision=outcome.current,
        update_revision=outcome.update,
        model=module,
        kv_fingerprint=KVFingerprint.model_validate(theirs) if theirs and outcome.current else KVFingerprint(),
        effective_traffic=model.spec.traffic if observed.profiles else None,
        verification=outcome.check.status,
    ).to_wire()
    for computed in ("conditions", "observedGeneration"):
        made.pop(computed)
    asked = {wanted.revision} if wanted and outcome.verdicts[1].status == "True" else set()
    asked |= {entry["revision"] for entry in outcome.routes}
    return made | {"traffic": outcome.routes, "adapters": _adapters(observed.key, asked, outcome.known)}


def still_routed(key: Key, routes: object, known: Iterable[ModelRevision]) -> list[dict[str, Any]]:
    """Adapters that pools have to keep for a task which has pods of its own again, until these serve."""
    entries = routes if isinstance(routes, list) else []
    return _adapters(key, {str(entry.get("revision")) for entry in entries}, known)


def _adapters(key: Key, wanted: set[str], known: Iterable[ModelRevision]) -> list[dict[str, Any]]:
    return [
        PooledAdapter(
            name=pooled_check.adapter_of(key, record),
            pool=record.pool,
            uri=record.uri,
            digest=record.digest,
        ).to_wire()
        for record in known
        if record.pool and record.revision in wanted
    ]
