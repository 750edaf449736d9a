"""The revision that an adapter makes on the pods of a PrefillPool, or why it makes none yet. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from sunfleet_api.checkpoint import ADAPTER
from sunfleet_api.conditions import ConditionType, Reason
from sunfleet_api.fingerprint import revision_hash
from sunfleet_api.prefill_pool import Lora, PrefillPool
from sunfleet_api.sun_model import SunModel
from sunfleet_api.weights import parse_uri
from sunfleet_api.worker import ResolverReport
from sunfleet_operator import records
from sunfleet_operator.build.adapters import mounted_at
from sunfleet_operator.build.volumes import GivenVolumes
from sunfleet_operator.build.weights import MOUNTED_SCHEMES, Weights, adapter_weights, resolved
from sunfleet_operator.observed import Defaults, ObservedModel
from sunfleet_operator.plan import pooled_check, task, weights
from sunfleet_operator.plan.candidate import Candidate
from sunfleet_operator.plan.conditions import Verdict
from sunfleet_operator.plan.task import Standing
from sunfleet_operator.plan.verify import Check
from sunfleet_operator.records import DecoderRevision, ModelRevision
from sunfleet_operator.references import pool_of
from sunfleet_operator.types import Json, Key, status_of

_REFS = ConditionType.RESOLVED_REFS


@dataclass(frozen=True)
class Pool:
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


def pool_for(observed: ObservedModel, model: SunModel) -> Pool:
    """May the task share that pool, do both have one decoder, and can its pods have the adapter's files?"""
    name = named(pool_of(observed.live))

    def no(reason: Reason, message: str) -> Pool:
        return Pool(Verdict(_REFS, "False", reason, message))

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
        return Pool(fault)
    ready: Json = next((c for c in pool.status.to_wire()["conditions"] if c["type"] == "Ready"), {})
    return Pool(Verdict(_REFS, "True", Reason.RESOLVED, name), pool, ready.get("reason") == Reason.SCALED_TO_ZERO)


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


def candidate(
    observed: ObservedModel,
    model: SunModel,
    pool: Pool,
    defaults: Defaults,
    known: Collection[ModelRevision],
    now: datetime,
    *,
    moving: bool,
    leave: Collection[str] = (),
) -> Candidate:
    """What ``model`` asks for with that decoder and pool. Its references count as refused where either refuses them.

    ``moving``: a revision serves through another decoder or other pods than those that are named now; ``leave``: ids of
    other questions about weights.
    """
    standing = _standing(task.standing(observed, model, elsewhere=moving), pool, moving=moving)
    resolution = _resolve(observed, model, pool, defaults, now, refused=standing.refused, leave=leave)
    contract, report = standing.contract, resolution.report
    fits = _fits(task.compatible(observed, model, contract, report), pool, report)
    target = _target(observed, model, contract, report) if fits.status == "True" else None
    if target is None or report is None or (model.spec.paused and target not in known):
        return Candidate(standing, resolution, fits)
    return Candidate(standing, resolution, fits, target, resolved(_files(observed, model, pool)[0], report))


def _standing(found: Standing, pool: Pool, *, moving: bool) -> Standing:
    accepted, refs = found.verdicts
    refs = refs if refs.status != "True" else pool.verdict
    shut = found.refused or (refs.reason == Reason.NOT_ALLOWED_BY_POOL and not moving)
    gone = shut or (refs.reason == Reason.POOL_NOT_FOUND and not moving) or found.no_traffic
    return Standing((accepted, refs), shut, gone, found.contract if pool.spec else None)


def checked(
    observed: ObservedModel,
    model: SunModel,
    pool: Pool,
    made: Candidate,
    defaults: Defaults,
    *,
    serving: bool,
    now: datetime,
) -> Check:
    """Golden prompts of a candidate, on those pods that have it."""
    if made.target is None or made.module is None or pool.spec is None:
        return Check(cleared=True)
    _, pod = _files(observed, model, pool)
    return pooled_check.checked(observed, model, made.target, made.module, pod, defaults, serving=serving, now=now)


def question(observed: ObservedModel, model: SunModel, pool: Pool, defaults: Defaults) -> weights.Question:
    """What has to be found out of its adapter."""
    source, (module, pod) = model.spec.prefill.source, _files(observed, model, pool)
    return weights.Question(source, module, defaults.fetcher.told(source.download), pod)


def _files(observed: ObservedModel, model: SunModel, pool: Pool) -> tuple[Weights, Mapping[str, Any]]:
    """The adapter's files as a Job of the task finds them, and what its pod has of the pool's in the same namespace."""
    source = model.spec.prefill.source
    secret = source.credentials_secret_ref.name if source.credentials_secret_ref else ""
    near = pool.spec is not None and pool.spec.metadata.namespace == observed.key.namespace
    inherited = weights.inherited(pool.spec.spec.template.spec) if pool.spec is not None and near else {}
    return adapter_weights(source.uri, secret, pool.given), inherited


def _resolve(
    observed: ObservedModel,
    model: SunModel,
    pool: Pool,
    defaults: Defaults,
    now: datetime,
    *,
    refused: bool,
    leave: Collection[str],
) -> weights.Resolution:
    source = model.spec.prefill.source
    if refused or pool.spec is None:
        recorded = records.newest(observed.children.records, records.WeightsRecord)
        known = None if refused else next((one.report for one in recorded if one.uri == source.uri), None)
        waiting = Verdict(ConditionType.WEIGHTS_READY, "Unknown", Reason.PENDING, "not looked at before ResolvedRefs")
        return weights.Resolution(known, waiting)
    asked, held = question(observed, model, pool, defaults), model.spec.paused
    return weights.resolve(observed.live, observed.key, observed.children, asked, paused=held, now=now, leave=leave)


def _fits(verdict: Verdict, pool: Pool, report: ResolverReport | None) -> Verdict:
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
    pool, decoder = named(pool_of(observed.live)), "/".join(model.spec.decoder_ref.resolve(observed.key.namespace))
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


def named(pool: Key | None) -> str:
    """namespace/name, as records have it."""
    return f"{pool.namespace}/{pool.name}" if pool else ""


def asleep(pool: Json) -> bool:
    """No pods are wanted of it, as its status says."""
    found = status_of(pool).get("conditions") or ()
    return any((c.get("type"), c.get("reason")) == ("Ready", str(Reason.SCALED_TO_ZERO)) for c in found)
