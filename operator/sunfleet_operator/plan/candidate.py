"""The revision that a prefill module and a decoder make together, or why they make none yet. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sunfleet_api import names
from sunfleet_api.checkpoint import ADAPTER
from sunfleet_api.conditions import ConditionType, Reason
from sunfleet_api.fingerprint import revision_hash
from sunfleet_api.sun_model import SunModel
from sunfleet_api.worker import ResolverReport
from sunfleet_operator.build import labels
from sunfleet_operator.build.engine_pod import FORM, EnginePod, template
from sunfleet_operator.build.volumes import GivenVolumes
from sunfleet_operator.build.weights import Weights, adapter_weights, model_weights, resolved
from sunfleet_operator.observed import Defaults, ObservedModel
from sunfleet_operator.plan import task, weights
from sunfleet_operator.plan.common import asked_download, asked_secrets, worker_settings
from sunfleet_operator.plan.conditions import Verdict
from sunfleet_operator.records import DecoderRevision, ModelRevision


@dataclass(frozen=True)
class Candidate:
    """``target`` and ``module`` (as it stands in a pod) are there once everything is known and fits."""

    standing: task.Standing
    resolution: weights.Resolution
    fits: Verdict
    target: ModelRevision | None = None
    module: Weights | None = None

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """In the order in which they can fail."""
        return (*self.standing.verdicts, self.resolution.verdict, self.fits)


def candidate(
    observed: ObservedModel,
    model: SunModel,
    defaults: Defaults,
    known: Sequence[ModelRevision],
    now: datetime,
    *,
    elsewhere: bool,
    leave: Collection[str] = (),
) -> Candidate:
    """What ``model`` asks for with the decoder that was ``observed``.

    ``elsewhere``: see :func:`~sunfleet_operator.plan.task.standing`; ``leave``: ids of other questions about weights.
    """
    standing = task.standing(observed, model, elsewhere=elsewhere)
    resolution = _resolve(observed, model, defaults, now, refused=standing.refused, leave=leave)
    contract, report = standing.contract, resolution.report
    unreachable = task.unreachable_base(observed, model, contract) if contract else None
    if unreachable is not None:
        standing = replace(standing, verdicts=(standing.verdicts[0], unreachable))
    fits = task.compatible(observed, model, contract, report)
    if not contract or not report or fits.status != "True" or unreachable is not None:
        return Candidate(standing, resolution, fits)
    target = _target(observed, model, contract, report, defaults, known)
    if model.spec.paused and target not in known:
        return Candidate(standing, resolution, fits)
    return Candidate(standing, resolution, fits, target, resolved(_module(model), report))


def question(model: SunModel, defaults: Defaults) -> weights.Question:
    """What has to be found out of its prefill module."""
    source, pod = model.spec.prefill.source, weights.inherited(model.spec.template.spec)
    return weights.Question(source, _module(model), defaults.fetcher.told(source.download), pod)


def _resolve(
    observed: ObservedModel,
    model: SunModel,
    defaults: Defaults,
    now: datetime,
    *,
    refused: bool,
    leave: Collection[str],
) -> weights.Resolution:
    if refused:
        waiting = Verdict(ConditionType.WEIGHTS_READY, "Unknown", Reason.PENDING, "not looked at while refused")
        return weights.Resolution(None, waiting)
    asked, held = question(model, defaults), model.spec.paused
    return weights.resolve(observed.live, observed.key, observed.children, asked, paused=held, now=now, leave=leave)


def _module(model: SunModel) -> Weights:
    """The task's own module as it stands in a pod."""
    source, given = model.spec.prefill.source, GivenVolumes.of(model.spec.template.spec)
    make = adapter_weights if model.spec.prefill.adapter else model_weights
    return make(source.uri, source.credentials_secret_ref.name if source.credentials_secret_ref else "", given)


def _beneath(contract: DecoderRevision) -> list[str]:
    """The checkpoint beneath an adapter, as far as a revision depends on it."""
    return [contract.prefill_report.resolved_uri, contract.prefill_report.digest, contract.prefill_secret]


def _target(
    observed: ObservedModel,
    model: SunModel,
    contract: DecoderRevision,
    report: ResolverReport,
    defaults: Defaults,
    known: Sequence[ModelRevision],
) -> ModelRevision:
    """The revision that the spec asks for: the recorded one where it was built before."""
    spec, module = model.spec, resolved(_module(model), report)
    decoder = "/".join(spec.decoder_ref.resolve(observed.key.namespace))
    base = _beneath(contract) if spec.prefill.adapter else []
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
            **asked_secrets(defaults),
        },
    )
    found = next((record for record in known if record.revision == revision), None)
    if found is not None:
        return found
    below = model_weights(contract.prefill_report.resolved_uri, contract.prefill_secret, module.given)
    in_pod = [resolved(below, contract.prefill_report), module] if base else [module]
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
        key_secret=defaults.engine_key,
        tls_secret=defaults.engine_tls,
    )
    return ModelRevision(
        revision=revision,
        decoder=decoder,
        decoder_digest=contract.decoder_digest,
        digest=report.digest,
        kv_fingerprint=kv,
        template=template(pod),
    )
