"""Golden prompts for a task whose adapter the pods of a PrefillPool hold. Pure.

Pods load the adapter and are told of as any other, but routers hear of it only once its answers are known to be right.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sunfleet_api import names
from sunfleet_api.pooling import adapter_name, announced
from sunfleet_api.sun_model import SunModel
from sunfleet_operator.build.weights import Weights
from sunfleet_operator.observed import Defaults, ObservedModel
from sunfleet_operator.plan import verify
from sunfleet_operator.plan.verify import Check
from sunfleet_operator.records import ModelRevision
from sunfleet_operator.types import Json, Key, labels_of, metadata, status_of


def checked(
    observed: ObservedModel,
    model: SunModel,
    target: ModelRevision,
    module: Weights,
    pod: Mapping[str, Any],
    defaults: Defaults,
    *,
    serving: bool,
    now: datetime,
) -> Check:
    """Where the check of ``target`` stands. ``module``: its files as a Job finds them; ``pod``: fields of that Job's
    pod; ``serving``: clients' requests go to this revision already."""
    if observed.decoder is None:
        return Check(cleared=serving)
    subject = verify.Subject(
        target,
        module,
        _holders(observed, target),
        observed.decoder,
        observed.decoder_deployments,
        observed.decode_pods,
        adapter_of(observed.key, target),
    )
    facts = verify.Facts(
        observed.live,
        observed.key,
        observed.children,
        model.spec.verification,
        subject,
        observed.config_map,
        defaults.fetcher.told(model.spec.prefill.source.download),
        pod,
        serving=serving,
        paused=model.spec.paused,
    )
    return verify.check(facts, now)


def adapter_of(key: Key, record: ModelRevision) -> str:
    """Under which name pods of its pool load a revision."""
    return adapter_name(key.namespace, key.name, record.revision)


def _holders(observed: ObservedModel, target: ModelRevision) -> list[Json]:
    """Pods of the pool that have loaded the adapter and make KV of its format."""
    adapter, kv = adapter_of(observed.key, target), target.kv_fingerprint.label
    return [
        pod
        for pod in observed.pool_pods
        if labels_of(pod).get(names.LABEL_KV_FINGERPRINT) == kv and adapter in announced(metadata(pod), status_of(pod))
    ]
