"""What both plans say in the same words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from pydantic import ValidationError

from sunfleet_api import names
from sunfleet_api.base import ApiModel, Resource
from sunfleet_api.conditions import ConditionType, Reason
from sunfleet_api.digests import KVFingerprint
from sunfleet_api.explained import explained
from sunfleet_api.inactive import ENGINE_UPGRADE, WHY, inactive_fields
from sunfleet_api.weights import WeightsSource
from sunfleet_api.worker import WorkerSettings
from sunfleet_operator.observed import Defaults
from sunfleet_operator.plan import status
from sunfleet_operator.plan.actions import Plan
from sunfleet_operator.plan.conditions import Verdict
from sunfleet_operator.records import Engine
from sunfleet_operator.types import Json, spec_of, status_of

# These are not watched, so somebody who makes room is noticed so late.
TAKEN_SECONDS = 30
_COLLECTED_SECONDS = 1
_DOWNLOAD_SECONDS = 15


def invalid(
    live: Json, error: ValidationError, kind: type[Resource], now: datetime, more: Sequence[Verdict] = ()
) -> Plan:
    """A spec that this operator cannot read, though the API server took it: a newer CRD, or none of our validation.
    Children stay."""
    return unknown(live, unreadable(live, error, kind), now, more)


def unreadable(live: Json, error: ValidationError, kind: type[Resource]) -> Verdict:
    """Which fields, and what is wrong with them."""
    faults = "; ".join(explained(error, live, kind).splitlines())
    message = f"{faults}; correct it, or upgrade the operator to the version of the CRDs"
    return Verdict(ConditionType.ACCEPTED, "False", Reason.INVALID_SPEC, message)


def unknown(live: Json, verdict: Verdict, now: datetime, more: Sequence[Verdict] = ()) -> Plan:
    """What is wanted cannot be known before somebody mends it. Children stay."""
    ready = Verdict(ConditionType.READY, "False", verdict.reason, f"{verdict.type}: {verdict.message}")
    return _only_conditions(live, [verdict, ready, *more], now)


def waiting(live: Json, now: datetime) -> Plan:
    """An owner that was deleted and made again at once: the children of the first one bear the names of its own."""
    message = "children of an earlier object of this name are still there: waits for the garbage collector"
    verdicts = [
        Verdict(ConditionType.PROGRESSING, "Unknown", Reason.PENDING, message),
        Verdict(ConditionType.READY, "False", Reason.PENDING, f"Progressing: {message}"),
    ]
    return replace(_only_conditions(live, verdicts, now), requeue_after=_COLLECTED_SECONDS)


def _only_conditions(live: Json, verdicts: Sequence[Verdict], now: datetime) -> Plan:
    """Says something and changes nothing else."""
    kept = {key: value for key, value in status_of(live).items() if key not in {"conditions", "observedGeneration"}}
    return Plan(status=status.write(live, kept, verdicts, now), events=status.events(live, verdicts))


def soonest(*seconds: float | None) -> float | None:
    """The earliest of several reasons to look again."""
    return min((given for given in seconds if given is not None), default=None)


def look_again(verdicts: Sequence[Verdict]) -> float | None:
    """Seconds until a download has got further, which nobody tells; ``None`` when there is none."""
    loads = any(verdict.reason == Reason.DOWNLOADING for verdict in verdicts)
    return _DOWNLOAD_SECONDS if loads else None


def ignored(spec: ApiModel, decoder: Json | None) -> list[Verdict]:
    """``FieldsIgnored``, when there is any. What the decoder does anyway is not ignored."""
    upgrades = ((spec_of(decoder).get("rollout") or {}).get("engineUpgrade") if decoder else None) == "Automatic"
    fields = [path for path in inactive_fields(spec) if not (upgrades and path == ENGINE_UPGRADE)]
    if not fields:
        return []
    message = "set without effect: " + "; ".join(f"{path} ({WHY[path]})" for path in fields)
    return [Verdict(ConditionType.FIELDS_IGNORED, "True", Reason.WITHOUT_EFFECT, message)]


def refused(verdicts: Sequence[Verdict], refusal: str) -> list[Verdict]:
    """``verdicts`` when a child could not be made: nothing goes on before somebody changes something."""
    if not refusal:
        return list(verdicts)
    others = [verdict for verdict in verdicts if verdict.type != ConditionType.PROGRESSING]
    return [*others, Verdict(ConditionType.PROGRESSING, "False", Reason.CHILD_REFUSED, refusal)]


def told_refusal(live: Json) -> str:
    """The refusal that the status tells of now, empty when there is none."""
    told = (str(ConditionType.PROGRESSING), str(Reason.CHILD_REFUSED))
    conditions = status_of(live).get("conditions") or ()
    return next((str(c.get("message")) for c in conditions if (c.get("type"), c.get("reason")) == told), "")


def paused(*, spec_paused: bool) -> list[Verdict]:
    """``Paused``, when it is."""
    if not spec_paused:
        return []
    message = "spec.paused is true: children and traffic stay as they are"
    return [Verdict(ConditionType.PAUSED, "True", Reason.PAUSED, message)]


def asked_download(source: WeightsSource) -> dict[str, object]:
    """Part of a revision, if the object says how to download; the operator's own default rolls no pod."""
    return {} if source.download is None else {"download": source.download.given()}


def asked_secrets(defaults: Defaults) -> dict[str, object]:
    """Part of a revision, if engines ask for a key or speak TLS: pods without are replaced."""
    asked = {"key": defaults.engine_key, "tls": defaults.engine_tls}
    return {name: secret for name, secret in asked.items() if secret}


def changes_contract(changes: Sequence[str]) -> str:
    """Why an overlay is refused, and where the wish belongs."""
    return (
        f"spec.template changes {', '.join(changes)}, which decides what KV a pod makes and reads: prefill and decode "
        "pods would no longer be a pair that anything has compared. Take it out of the template; image, types, block "
        "size and tensor parallelism are set under spec.engine of the SharedDecoder, and all attached pods inherit them"
    )


def worker_settings(role: str, engine: Engine, kv: KVFingerprint, drain_seconds: int, **more: object) -> WorkerSettings:
    """Settings of an engine container of either role."""
    return WorkerSettings.model_validate(
        {
            "role": role,
            "dtype": engine.dtype,
            "kv_cache_dtype": engine.kv_cache_dtype,
            "block_size": engine.block_size,
            "max_model_len": engine.max_model_len,
            "tensor_parallel_size": engine.tensor_parallel_size,
            "extra_args": engine.extra_args,
            "metrics_port": names.METRICS_PORT,
            "drain_timeout_seconds": drain_seconds,
            "kv_fingerprint": kv.digest,
            **more,
        }
    )
