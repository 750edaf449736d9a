"""From a PrefillTuning and its decoder to what the run's pods are given, or why there can be no run yet. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from sunfleet_api import names
from sunfleet_api.conditions import ConditionType, Reason
from sunfleet_api.prefill_tuning import PrefillTuning
from sunfleet_api.tuning import DATA_PREFIX, OUTPUT_PREFIX, RENDEZVOUS_PORT, TuneJob
from sunfleet_api.weights import parse_uri
from sunfleet_operator import records
from sunfleet_operator.build import labels
from sunfleet_operator.build.tuner import Place, Work, processes
from sunfleet_operator.build.volumes import GivenVolumes
from sunfleet_operator.build.weights import MOUNTED_SCHEMES, Weights, resolved
from sunfleet_operator.observed import Defaults, ObservedTuning
from sunfleet_operator.plan import task
from sunfleet_operator.plan.conditions import Verdict
from sunfleet_operator.records import DecoderRevision
from sunfleet_operator.types import DECODER, Key

# Settings that the pod's own place decides.
_OURS: Final = frozenset(
    {
        "decoder",
        "init",
        "output",
        "work",
        "data",
        "validation",
        "method",
        "rank",
        "alpha",
        "targets",
        "progress",
        "failure",
    }
)


@dataclass(frozen=True)
class Asked:
    """Verdicts on what the spec refers to, and the run that it asks for when all of them are True."""

    verdicts: tuple[Verdict, ...]
    work: Work | None = None


def ask(observed: ObservedTuning, tuning: PrefillTuning, defaults: Defaults) -> Asked:
    """Who may tune against the decoder is who may be served by it."""
    accepted = _accepted(tuning)
    namespace, name = tuning.spec.decoder_ref.resolve(observed.key.namespace)
    refs = task.resolved_refs(observed, Key(DECODER, namespace, name), kept=False)
    contract = records.parse(observed.contract) if observed.contract and refs.status == "True" else None
    if not isinstance(contract, DecoderRevision):
        if refs.status == "True":
            message = f"waits for SharedDecoder {namespace}/{name}: its weights are not known yet"
            refs = Verdict(ConditionType.RESOLVED_REFS, "False", Reason.DECODER_NOT_READY, message)
        return Asked((accepted, refs))
    weights = _weights(tuning, contract)
    if fault := next(_unreachable(observed, tuning, weights, namespace), None):
        return Asked((accepted, fault))
    if accepted.status != "True":
        return Asked((accepted, refs))
    return Asked((accepted, refs), _work(observed, tuning, defaults, weights))


def _accepted(tuning: PrefillTuning) -> Verdict:
    type_, taken = ConditionType.ACCEPTED, sorted(_OURS & tuning.spec.hyperparameters.extra.keys())
    if taken:
        message = f"hyperparameters.extra cannot hold {', '.join(taken)}: other fields of the spec say so"
        return Verdict(type_, "False", Reason.INVALID_HYPERPARAMETERS, message)
    return Verdict(type_, "True", Reason.ACCEPTED)


def _weights(tuning: PrefillTuning, contract: DecoderRevision) -> list[Weights]:
    """The decoder as it is served, and what the module starts from where that is something else."""
    given = GivenVolumes.of(tuning.spec.template.spec, names.TUNER_CONTAINER)
    served = Weights(contract.report.resolved_uri, names.WEIGHTS_PATH, "weights", contract.secret, given=given)
    found = [resolved(served, contract.report)]
    start = tuning.spec.init_from
    if start is not None:
        secret = start.credentials_secret_ref.name if start.credentials_secret_ref else ""
        found.append(Weights(start.uri, names.INIT_PATH, "init", secret, given=given))
    elif contract.base is not None:
        base = Weights(contract.base.resolved_uri, names.INIT_PATH, "init", contract.base_secret, given=given)
        found.append(resolved(base, contract.base))
    return found


def _unreachable(
    observed: ObservedTuning, tuning: PrefillTuning, weights: list[Weights], namespace: str
) -> Iterator[Verdict]:
    """A claim can be mounted in its own namespace only, and a path only from a volume of the template."""
    own = 1 if tuning.spec.init_from is not None else len(weights)  # how many of them are the decoder's
    for number, one in enumerate(weights):
        uri = parse_uri(one.uri)
        if uri.scheme not in MOUNTED_SCHEMES:
            continue
        if uri.scheme == "file" and one.given.find(uri.location) is None:
            message = (
                f"{one.uri} lies in no volume of this object: add one to spec.template.spec.volumes and mount it over"
                f" that path into the container named {names.TUNER_CONTAINER}"
            )
            yield Verdict(ConditionType.RESOLVED_REFS, "False", Reason.VOLUME_NOT_FOUND, message)
        elif uri.scheme == "pvc" and number < own and namespace != observed.key.namespace:
            message = (
                f"the decoder's checkpoint {one.uri} is a volume claim of namespace {namespace}, which cannot be"
                f" mounted in {observed.key.namespace}: put this PrefillTuning there, or serve"
                " the decoder from hf:// or s3://"
            )
            yield Verdict(ConditionType.RESOLVED_REFS, "False", Reason.VOLUME_CLAIM_NOT_FOUND, message)


def _work(observed: ObservedTuning, tuning: PrefillTuning, defaults: Defaults, weights: list[Weights]) -> Work:
    spec, key = tuning.spec, observed.key
    secret = spec.dataset.credentials_secret_ref.name if spec.dataset.credentials_secret_ref else ""
    data = Place(spec.dataset.uri, names.DATA_PATH, secret, DATA_PREFIX)
    other = spec.validation.uri if spec.validation else None
    validation = Place(other, names.VALIDATION_PATH, secret, DATA_PREFIX) if other else None
    written = spec.output.credentials_secret_ref.name if spec.output.credentials_secret_ref else ""
    output = Place(spec.output.uri, names.OUTPUT_PATH, written, OUTPUT_PREFIX)
    overlay, name = spec.template.to_wire(), labels.tuner_name(key)
    each = processes(overlay)
    job = TuneJob(
        data=data.uri,
        data_path=data.inside if data.claim else "",
        validation=validation.uri if validation else "",
        validation_path=validation.inside if validation and validation.claim else "",
        output=output.uri,
        output_path=output.inside if output.claim else f"{output.path}/module",
        processes=each,
        nodes=spec.nodes,
        sharded=spec.method.full is not None and each * spec.nodes > 1,
        main_address=f"{name}-0.{name}:{RENDEZVOUS_PORT}" if spec.nodes > 1 else "",
        settings=_settings(tuning, start_differs=len(weights) > 1),
    )
    download = spec.init_from.download if spec.init_from else None
    return Work(
        name=name,
        role=names.ROLE_TUNER,
        job=job,
        image=defaults.tuner_image,
        fetcher=defaults.fetcher.told(download),
        weights=weights,
        read=[data, *([validation] if validation else [])],
        write=output,
        pull_policy=defaults.pull_policy,
        nodes=spec.nodes,
        overlay=overlay,
        limits=_limits(tuning),
    )


def _limits(tuning: PrefillTuning) -> dict[str, Any]:
    spec = tuning.spec
    optional = {
        "activeDeadlineSeconds": spec.active_deadline_seconds,
        "ttlSecondsAfterFinished": spec.ttl_seconds_after_finished,
    }
    given = {field: value for field, value in optional.items() if value is not None}
    return {"backoffLimit": spec.backoff_limit, "suspend": spec.suspend, **given}


def _settings(tuning: PrefillTuning, *, start_differs: bool) -> dict[str, str]:
    """Keys of the tuner's configuration, as text."""
    spec, more = tuning.spec, tuning.spec.hyperparameters
    lora = spec.method.lora
    method = {"method": "full"}
    if lora is not None:
        targets = ",".join(lora.target_modules) or "all-linear"
        method = {"method": "lora", "rank": str(lora.rank), "alpha": str(lora.alpha), "targets": targets}
    held_out = spec.validation.subset if spec.validation else None
    percent = spec.validation.percent if spec.validation and spec.validation.percent is not None else 5
    return {
        "decoder": names.WEIGHTS_PATH,
        **({"init": names.INIT_PATH} if start_differs else {}),
        **method,
        "name": tuning.metadata.name,
        "split": spec.dataset.split,
        **({"subset": spec.dataset.subset} if spec.dataset.subset else {}),
        **({"validation_subset": held_out} if held_out else {}),
        "format": spec.dataset.format.lower(),
        "validation_percent": str(percent),
        "epochs": str(more.epochs),
        "max_steps": str(more.max_steps),
        "batch_tokens": str(more.batch_tokens),
        "seed": str(more.seed),
        "precision": more.precision,
        **({"learning_rate": more.learning_rate} if more.learning_rate else {}),
        **more.extra,
    }
