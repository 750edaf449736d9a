"""``status.traffic``: the one statement of what routers may do. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sunfleet_api.fingerprint import cache_salt
from sunfleet_api.pooling import adapter_name
from sunfleet_api.traffic import PrefillTarget, TrafficTarget
from sunfleet_operator.build.labels import revision_selector, selector_text
from sunfleet_operator.records import ModelRevision
from sunfleet_operator.types import Key


def shares(usable: Mapping[str, int], current: str, target: str, *, least: int = 0) -> Mapping[str, int]:
    """Percent of new requests per revision, newest first.

    ``usable`` counts pods that can serve now. A revision gets requests only once one of its pods can serve; then the
    target's share grows with its pods. Without any usable pod ``current`` keeps all: a pod that is ill for a moment
    changes no routing. ``least``: percent that the target had already, as a canary.
    """
    if not current or current == target:
        serving = target if usable.get(target) or current == target else ""
        return {serving: 100} if serving else {}
    new, old = usable.get(target, 0), usable.get(current, 0)
    if not new:
        return {current: 100}
    if not old:
        return {target: 100}
    percent = max(1, least, round(100 * new / (new + old)))
    return {target: percent, current: 100 - percent} if percent < 100 else {target: 100}


def entries(key: Key, uid: str, percent: Mapping[str, int], records: Sequence[ModelRevision]) -> list[TrafficTarget]:
    """Entries for revisions that have a record; one that has none cannot be described, so it gets no requests."""
    by_revision = {record.revision: record for record in records}
    return [
        _entry(key, uid, by_revision[revision], weight)
        for revision, weight in percent.items()
        if revision in by_revision
    ]


def _prefill(key: Key, record: ModelRevision) -> PrefillTarget:
    if record.pool:
        return PrefillTarget(pool=record.pool, adapter=adapter_name(key.namespace, key.name, record.revision))
    return PrefillTarget(selector=selector_text(revision_selector(key, record.revision)))


def _entry(key: Key, uid: str, record: ModelRevision, weight: int) -> TrafficTarget:
    return TrafficTarget(
        revision=record.revision,
        weight=weight,
        decoder=record.decoder,
        prefill=_prefill(key, record),
        cache_salt=cache_salt(uid, record.digest, record.decoder_digest),
    )
