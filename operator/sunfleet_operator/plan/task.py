"""May this task be served, by which decoder, and do they fit? The questions before any pod of a SunModel. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import ValidationError

from sunfleet_api.checkpoint import ADAPTER
from sunfleet_api.conditions import ConditionType, Reason
from sunfleet_api.fingerprint import compare
from sunfleet_api.shared_decoder import SharedDecoder
from sunfleet_api.sun_model import SunModel
from sunfleet_api.weights import parse_uri
from sunfleet_api.worker import ResolverReport
from sunfleet_operator import records
from sunfleet_operator.build.protected import protected_changes
from sunfleet_operator.build.volumes import GivenVolumes
from sunfleet_operator.build.weights import MOUNTED_SCHEMES
from sunfleet_operator.observed import ObservedModel, ObservedTuning
from sunfleet_operator.plan.common import changes_contract
from sunfleet_operator.plan.conditions import Verdict
from sunfleet_operator.records import DecoderRevision
from sunfleet_operator.types import DECODER, Json, Key, full_name, is_terminating, metadata, status_of


@dataclass(frozen=True)
class Standing:
    """Verdicts on the references. ``refused``: not to be served at all. ``contract``: what the decoder publishes."""

    verdicts: tuple[Verdict, ...]
    refused: bool
    no_traffic: bool  # refused, or the decoder is gone
    contract: DecoderRevision | None


def standing(observed: ObservedModel, model: SunModel, *, elsewhere: bool) -> Standing:
    """Accepted and ResolvedRefs, and the decoder's contract when both hold.

    ``elsewhere``: a revision serves through another decoder than the one that is named now, so a wrong new reference
    stops nothing.
    """
    accepted = _accepted(observed, model)
    decoder = Key(DECODER, *model.spec.decoder_ref.resolve(observed.key.namespace))
    refs = resolved_refs(observed, decoder, kept=bool(status_of(observed.live).get("traffic")))
    gone = refs.reason in {Reason.NOT_ALLOWED_BY_DECODER, Reason.DECODER_NOT_FOUND} and not elsewhere
    refused = accepted.status == "False" or (refs.reason == Reason.NOT_ALLOWED_BY_DECODER and not elsewhere)
    asked = accepted.status == refs.status == "True" and observed.contract is not None
    contract = records.parse(observed.contract) if asked and observed.contract is not None else None
    return Standing(
        (accepted, refs), refused, refused or gone, contract if isinstance(contract, DecoderRevision) else None
    )


def _accepted(observed: ObservedModel, model: SunModel) -> Verdict:
    """Of equal model names the oldest object is served; names decide between objects of one second."""
    type_ = ConditionType.ACCEPTED
    winner = min((observed.live, *_alive(observed.rivals)), key=_seniority)
    if winner is observed.live:
        return Verdict(type_, "True", Reason.ACCEPTED)
    message = (
        f"modelName {model.model_name!r} belongs to SunModel {full_name(winner)}, which is older; "
        "delete one of the two, or make this one again under another modelName"
    )
    return Verdict(type_, "False", Reason.MODEL_NAME_CONFLICT, message)


def _alive(rivals: Iterable[Json]) -> Iterable[Json]:
    return (rival for rival in rivals if not is_terminating(rival))


def _seniority(live: Json) -> tuple[str, str]:
    return str(metadata(live).get("creationTimestamp") or ""), full_name(live)


def resolved_refs(observed: ObservedModel | ObservedTuning, ref: Key, *, kept: bool) -> Verdict:
    """Is the decoder there, and may the object use it? ``kept``: it did so before the decoder began to go."""
    type_, namespace, name = ConditionType.RESOLVED_REFS, ref.namespace, ref.name
    if observed.decoder is None:
        message = f"there is no SharedDecoder {namespace}/{name} (yet)"
        if not observed.decoder_served:
            message = f"this operator does not serve namespace {namespace}: add it to SUNFLEET_OPERATOR_NAMESPACES"
        return Verdict(type_, "False", Reason.DECODER_NOT_FOUND, message)
    try:
        decoder = SharedDecoder.parse(observed.decoder)
    except ValidationError:
        message = f"the spec of SharedDecoder {namespace}/{name} cannot be read: its condition Accepted says why"
        return Verdict(type_, "False", Reason.INVALID_SPEC, message)
    if not decoder.spec.allowed_models.allows(
        own_namespace=namespace, namespace=observed.key.namespace, namespace_labels=dict(observed.namespace_labels)
    ):
        message = (
            f"SharedDecoder {namespace}/{name} does not allow {observed.key.kind}s of namespace "
            f"{observed.key.namespace}: its owner has to widen spec.allowedModels.namespaces"
        )
        return Verdict(type_, "False", Reason.NOT_ALLOWED_BY_DECODER, message)
    if decoder.deleting and not kept:
        return Verdict(type_, "False", Reason.DECODER_DELETING, f"SharedDecoder {namespace}/{name} is being deleted")
    return Verdict(type_, "True", Reason.RESOLVED, f"{namespace}/{name}")


def compatible(
    observed: ObservedModel, model: SunModel, contract: DecoderRevision | None, report: ResolverReport | None
) -> Verdict:
    """Could the decoder read this task's KV, and is it the decoder that the task was tuned for?"""
    type_ = ConditionType.KV_COMPATIBLE
    if contract is None:
        return Verdict(
            type_, "Unknown", Reason.PENDING, "waits for the decoder's KV contract" + _decoder_says(observed)
        )
    if report is None:
        return Verdict(type_, "Unknown", Reason.PENDING, "waits for WeightsReady")
    if changes := protected_changes(model.spec.template.to_wire()):
        return Verdict(type_, "False", Reason.TEMPLATE_CHANGES_CONTRACT, changes_contract(changes))
    faults = [*_wrong_kind(model, report), *(() if _wrong_kind(model, report) else compare(contract.report, report))]
    if faults:
        return Verdict(type_, "False", Reason.KV_MISMATCH, "; ".join(faults))
    if report.tuned_against and report.tuned_against != contract.decoder_digest:
        return _other_decoder(model, contract, report)
    return Verdict(type_, "True", Reason.KV_COMPATIBLE, contract.kv_fingerprint.digest)


def _decoder_says(observed: ObservedModel) -> str:
    if observed.decoder is None:
        return ""
    ready = next((c for c in status_of(observed.decoder).get("conditions") or () if c.get("type") == "Ready"), None)
    return f"; it says {ready.get('reason')}: {ready.get('message')}" if ready and ready.get("status") != "True" else ""


def _wrong_kind(model: SunModel, report: ResolverReport) -> list[str]:
    is_adapter, wanted = ADAPTER in report.config, model.spec.prefill.adapter is not None
    if is_adapter == wanted:
        return []
    if is_adapter:
        return [f"{report.resolved_uri} is a LoRA adapter: name it under spec.prefill.adapter"]
    return [f"{report.resolved_uri} is no LoRA adapter: name a whole checkpoint under spec.prefill.weights"]


def _other_decoder(model: SunModel, contract: DecoderRevision, report: ResolverReport) -> Verdict:
    message = f"tuned against decoder {report.tuned_against}, but this one is {contract.decoder_digest}"
    mode = model.spec.verification.decoder_mismatch if model.spec.verification else "Refuse"
    if mode == "Warn":
        return Verdict(ConditionType.KV_COMPATIBLE, "True", Reason.TUNED_AGAINST_OTHER_DECODER, message)
    hint = "; tune it again, or set spec.verification.decoderMismatch to Warn"
    return Verdict(ConditionType.KV_COMPATIBLE, "False", Reason.TUNED_AGAINST_OTHER_DECODER, message + hint)


def unreachable_base(observed: ObservedModel, model: SunModel, contract: DecoderRevision) -> Verdict | None:
    """An adapter runs over the decoder's checkpoint, and a claim can be mounted in its own namespace only."""
    namespace, _ = model.spec.decoder_ref.resolve(observed.key.namespace)
    uri = parse_uri(contract.prefill_report.resolved_uri)
    if model.spec.prefill.adapter is None or uri.scheme not in MOUNTED_SCHEMES:
        return None
    if uri.scheme == "file":
        return _unmounted_base(model, contract)
    if namespace == observed.key.namespace:
        return None
    message = (
        f"the adapter needs the decoder's checkpoint {contract.prefill_report.resolved_uri}, a volume claim of "
        f"namespace {namespace}, which cannot be mounted in {observed.key.namespace}: put this SunModel there, "
        "or serve the decoder from hf://"
    )
    return Verdict(ConditionType.RESOLVED_REFS, "False", Reason.VOLUME_CLAIM_NOT_FOUND, message)


def _unmounted_base(model: SunModel, contract: DecoderRevision) -> Verdict | None:
    """The decoder's volume is a matter of its own template; the task's has to mount it too."""
    base = contract.prefill_report.resolved_uri
    if GivenVolumes.of(model.spec.template.spec).find(parse_uri(base).location) is not None:
        return None
    message = (
        f"the adapter needs the decoder's checkpoint {base}: mount the volume that holds it over that path in this"
        " object's spec.template too, into the container named engine"
    )
    return Verdict(ConditionType.RESOLVED_REFS, "False", Reason.VOLUME_NOT_FOUND, message)
