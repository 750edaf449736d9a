"""What to do about a SunModel whose adapter the pods of a PrefillPool hold: no pods, an adapter in the status. Pure.

The pool reads ``status.adapters`` and loads them; this plan reads the pool's pods and routes to what they have loaded.
A new revision gets the requests once some pod has loaded it and a decode pod reads that pod's KV.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from sunfleet_api import names
from sunfleet_api.conditions import MODEL_ROLL_UP, ConditionType, Reason
from sunfleet_api.digests import KVFingerprint
from sunfleet_api.pooling import announced
from sunfleet_api.sun_model import PooledAdapter, PrefillModelStatus, SunModel, SunModelStatus
from sunfleet_operator import records
from sunfleet_operator.build import labels
from sunfleet_operator.observed import Defaults, ObservedModel
from sunfleet_operator.plan import (
    canary,
    conditions,
    pooled_canary,
    pooled_candidate,
    pooled_check,
    revisions,
    routed,
    status,
    steps,
    traffic,
    verify,
    weights,
)
from sunfleet_operator.plan.actions import Delete, Plan, Write
from sunfleet_operator.plan.canary import Decided, Entrant, Others
from sunfleet_operator.plan.candidate import Candidate
from sunfleet_operator.plan.common import ignored, paused, refused, soonest
from sunfleet_operator.plan.conditions import Verdict
from sunfleet_operator.plan.pooled_canary import InPool
from sunfleet_operator.plan.pooled_candidate import Pool, asleep, named, pool_for
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


@dataclass(frozen=True)
class _Outcome:
    """The parts of a plan that the status tells of. ``target`` is wanted, ``current`` serves after this step, and the
    spec asks for ``update``: wrong answers keep it from being wanted."""

    resolution: weights.Resolution
    verdicts: tuple[Verdict, ...]
    checks: tuple[Check, ...]  # its own first, then the canary's
    routes: list[dict[str, Any]]
    current: str
    target: ModelRevision | None
    update: str
    pods: int  # that serve it
    known: tuple[ModelRevision, ...]
    aside: frozenset[str]  # the canary's revision, while pods shall hold it
    canary: Decided
    before: tuple[Write, ...]
    after: tuple[Write, ...]


def plan(
    observed: ObservedModel, model: SunModel, made: Effective, defaults: Defaults, now: datetime, *, refusal: str = ""
) -> Plan:
    """Resolve, check against decoder and pool, say which adapter is wanted, publish traffic."""
    pool = pool_for(observed, model)
    outcome = _decide(observed, model, pool, defaults, now)
    verdicts = [
        *outcome.verdicts,
        *routed.of_task(observed.live, outcome.routes, observed.heard),
        *made.verdicts,
        *ignored(model.spec, observed.decoder),
        *paused(spec_paused=model.spec.paused),
    ]
    verdicts = refused(verdicts, refusal)
    counted = counting(model, verdicts, none=pool.asleep)
    verdicts.append(conditions.ready(counted, MODEL_ROLL_UP, zero=pool.asleep))
    held = model.spec.paused
    return Plan(
        before=() if held else (*made.writes, *outcome.before),
        status=status.write(observed.live, _fields(observed, model, outcome), verdicts, now),
        after=() if held else outcome.after,
        events=(*status.events(observed.live, verdicts), *(() if held else outcome.canary.events)),
        requeue_after=soonest(
            outcome.resolution.requeue_after,
            *(check.requeue_after for check in outcome.checks),
            outcome.canary.requeue_after,
        ),
        effective=made.live if made.used else None,
        checks=() if held else tuple(check.result for check in outcome.checks if check.result),
        canary="" if held else outcome.canary.ended,
    )


def _decide(observed: ObservedModel, model: SunModel, pool: Pool, defaults: Defaults, now: datetime) -> _Outcome:
    known = records.newest(observed.children.records, ModelRevision)
    current = revisions.serving(observed.live, known)
    serving = next((record for record in known if record.revision == current), None)
    base, check, entrant = _candidates(observed, model, pool, defaults, known, serving, now)
    target = base.target
    wanted = serving if target is None or (check.rejected and serving is not None) else target
    known = _with(known, target, entrant.revision if entrant else None)
    usable = _usable(observed, known)
    free = not model.spec.paused and (check.cleared or wanted is not target)
    percent, current = _shares(observed, usable, current, wanted, base, free=free)
    done = wanted is not None and current == wanted.revision
    others = Others(percent, wanted.revision if wanted else "", done)
    decided = _canary(observed, model, pool, entrant, usable, others, now)
    percent = steps.shares(dict(percent), decided.revision, decided.percent)
    aside = entrant.aside if entrant else frozenset()
    fleet = None
    if wanted:
        fleet = Fleet(observed.live, observed.key, observed.children, wanted, current, usable, aside=aside)
    verdicts = (
        *base.verdicts, _decoder_ready(observed, base.standing.contract),
        _prefill_ready(observed, pool, usable.get(wanted.revision, 0) if wanted else 0, wanted),
        *([_progress(wanted, done=done or pool.asleep, loaded=bool(usable.get(wanted.revision)))] if wanted else ()),
        *verified(check, serving),
    )  # fmt: skip
    update = target or wanted
    shut = base.standing.refused
    there = wanted is not None and wanted.pool == named(pool_of(observed.live))  # else its own pods, or others', serve
    checks = (check, *([entrant.check] if entrant else []))
    checking = (*verify.stale_jobs(observed.children, checks), *check.writes)
    made = revisions.record_writes(fleet) if fleet else ()
    return _Outcome(
        base.resolution, verdicts, checks, _routes(observed, model, base, percent, known), current, wanted,
        update.revision if update else "", usable.get(current, 0), tuple(known), aside, decided,
        before=(*base.resolution.writes, *made, *checking, *decided.before),
        after=tuple(_leave(observed, model, fleet, shut=shut)) if (fleet and done and there) or shut else (),
    )  # fmt: skip


def _candidates(
    observed: ObservedModel,
    model: SunModel,
    pool: Pool,
    defaults: Defaults,
    known: Sequence[ModelRevision],
    serving: ModelRevision | None,
    now: datetime,
) -> tuple[Candidate, Check, Entrant | None]:
    """What the task itself asks for, how it answers its golden prompts, and its canary."""
    here = "/".join(model.spec.decoder_ref.resolve(observed.key.namespace))
    moving = serving is not None and (serving.decoder != here or serving.pool != named(pool_of(observed.live)))
    own, beside = pooled_canary.asks(observed, model, pool, defaults)
    leave = () if own == beside else (beside,)
    base = pooled_candidate.candidate(observed, model, pool, defaults, known, now, moving=moving, leave=leave)
    current = serving.revision if serving else ""
    serves = base.target is not None and base.target.revision == current
    check = pooled_candidate.checked(observed, model, pool, base, defaults, serving=serves, now=now)
    return base, check, pooled_canary.enter(observed, model, base, defaults, known, current, now)


def _with(known: list[ModelRevision], *more: ModelRevision | None) -> list[ModelRevision]:
    """Records and what will be one, newest first."""
    made = [record for record in more if record is not None]
    return [*made, *(record for record in known if record.revision not in {new.revision for new in made})]


def _canary(
    observed: ObservedModel,
    model: SunModel,
    pool: Pool,
    entrant: Entrant | None,
    usable: Mapping[str, int],
    others: Others,
    now: datetime,
) -> Decided:
    if model.spec.paused:
        told = status_of(observed.live).get("canary")
        return Decided(status=canary.live_status(observed) if told else None)
    place = partial(InPool, observed, pool, model.spec.rollout.progress_deadline_seconds, usable, now)
    return canary.decide(entrant, observed, others, place, now)


def _usable(observed: ObservedModel, known: Iterable[ModelRevision]) -> dict[str, int]:
    """Pods per revision that have it and whose KV some decode pod reads.

    One of another pool, which is not observed, counts by itself: it served until now.
    """
    here, readable = named(pool_of(observed.live)), revisions.formats(observed.decoder_deployments)
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


def _shares(
    observed: ObservedModel,
    usable: Mapping[str, int],
    current: str,
    wanted: ModelRevision | None,
    base: Candidate,
    *,
    free: bool,
) -> tuple[dict[str, int], str]:
    """Percent of new requests per revision, without a canary; and the one that serves by itself after this step.
    ``free``: ``wanted`` may be it."""
    if base.standing.no_traffic or wanted is None:
        return {}, current
    sleeps = observed.pool is not None and asleep(observed.pool)
    if (usable.get(wanted.revision) or sleeps) and free:
        current = wanted.revision
    # Requests of a task that never had pods are held and bring some up, on which it is then checked.
    receives = current or (wanted.revision if sleeps else "")
    return ({receives: 100} if receives else {}), current


def _routes(
    observed: ObservedModel,
    model: SunModel,
    base: Candidate,
    percent: Mapping[str, int],
    known: Sequence[ModelRevision],
) -> list[dict[str, Any]]:
    """``status.traffic``."""
    if model.spec.paused and not base.standing.no_traffic:
        return [dict(entry) for entry in status_of(observed.live).get("traffic") or ()]
    uid = str(metadata(observed.live)["uid"])
    return [entry.to_wire() for entry in traffic.entries(observed.key, uid, percent, known)]


def _leave(observed: ObservedModel, model: SunModel, fleet: Fleet | None, *, shut: bool) -> list[Write]:
    """Pods of its own that the task had before, old records; when it is refused, everything that runs."""
    gone: list[Write] = [Delete(Ref.of("Deployment", live)) for live in observed.children.deployments]
    if shut:
        return [*gone, *(Delete(Ref.of("Job", live)) for live in observed.children.jobs)]
    limit, tried = model.spec.rollout.revision_history_limit, pooled_canary.shadow(model)
    uris = {task.spec.prefill.source.uri for task in (model, tried) if task is not None}
    return [*gone, *(revisions.trim(fleet, limit, uris) if fleet else ())]


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


def _prefill_ready(observed: ObservedModel, pool: Pool, serving: int, wanted: ModelRevision | None) -> Verdict:
    """Whether some pod of the pool has the wanted adapter; else why not."""
    type_, name = ConditionType.PREFILL_READY, named(pool_of(observed.live))
    if wanted is None:
        return Verdict(type_, "Unknown", Reason.PENDING, "no revision to load yet")
    if serving:
        text = f"{serving} pods of PrefillPool {name} have loaded it"
        return Verdict(type_, "True", Reason.MINIMUM_REPLICAS_AVAILABLE, text)
    if pool.asleep:
        return Verdict(
            type_, "True", Reason.SCALED_TO_ZERO, f"PrefillPool {name} has no pods; a request brings them up"
        )
    fault = observed.pool_faults.get(pooled_check.adapter_of(observed.key, wanted))
    if fault is not None:
        return Verdict(type_, "False", fault.reason, fault.message)
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
        verification=outcome.checks[0].status,
        canary=outcome.canary.status,
    ).to_wire()
    for computed in ("conditions", "observedGeneration"):
        made.pop(computed)
    asked = {wanted.revision} if wanted and outcome.verdicts[1].status == "True" else set()
    asked |= {entry["revision"] for entry in outcome.routes} | outcome.aside
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
