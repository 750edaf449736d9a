"""What both plans say in the same words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pydantic import ValidationError

from sunfleet_api.conditions import ConditionType, Reason
from sunfleet_api.digests import KVFingerprint
from sunfleet_api.worker import WorkerSettings
from sunfleet_operator.plan import status
from sunfleet_operator.plan.actions import Plan
from sunfleet_operator.plan.conditions import CHILD_REFUSED, Verdict
from sunfleet_operator.records import Engine
from sunfleet_operator.types import Json, status_of


def invalid(live: Json, error: ValidationError, now: datetime) -> Plan:
    """A spec that this operator cannot read, though the API server took it: a newer CRD, or none of our validation.
    Children stay."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    message = f"{where}: {first['msg']}; correct the field, or upgrade the operator to the version of the CRDs"
    verdicts = [
        Verdict(ConditionType.ACCEPTED, "False", Reason.INVALID_SPEC, message),
        Verdict(ConditionType.READY, "False", Reason.INVALID_SPEC, f"Accepted: {message}"),
    ]
    kept = {key: value for key, value in status_of(live).items() if key not in {"conditions", "observedGeneration"}}
    return Plan(status=status.write(live, kept, verdicts, now), events=status.events(live, verdicts))


def ignored(fields: Sequence[str]) -> list[Verdict]:
    """``FieldsIgnored``, when there is any."""
    if not fields:
        return []
    message = f"set, but without effect in this version: {', '.join(fields)}"
    return [Verdict(ConditionType.FIELDS_IGNORED, "True", Reason.NOT_YET_SUPPORTED, message)]


def refused(verdicts: Sequence[Verdict], refusal: str) -> list[Verdict]:
    """``verdicts`` when the API server refused a child: nothing goes on before somebody changes something."""
    if not refusal:
        return list(verdicts)
    message = f"the API server refused a child: {refusal}"
    others = [verdict for verdict in verdicts if verdict.type != ConditionType.PROGRESSING]
    return [*others, Verdict(ConditionType.PROGRESSING, "False", CHILD_REFUSED, message)]


def paused(*, spec_paused: bool) -> list[Verdict]:
    """``Paused``, when it is."""
    if not spec_paused:
        return []
    message = "spec.paused is true: children and traffic stay as they are"
    return [Verdict(ConditionType.PAUSED, "True", Reason.PAUSED, message)]


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
            "drain_timeout_seconds": drain_seconds,
            "kv_fingerprint": kv.digest,
            **more,
        }
    )
