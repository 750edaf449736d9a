"""Which tasks and pods belong to which PrefillPool, from watch events: the part of the index that is about adapters.

Pure bookkeeping, no requests; as the whole index it only *proposes* what to look at again.
"""

from __future__ import annotations

from sunfleet_api import names
from sunfleet_api.pooling import announced
from sunfleet_operator.observed import PoolUser
from sunfleet_operator.references import decoder_of
from sunfleet_operator.types import (
    MODEL,
    POOL,
    Json,
    Key,
    is_terminating,
    key_of,
    labels_of,
    metadata,
    namespace_of,
    ready_since,
    spec_of,
    status_of,
)

_POOL_FACTS = ("updateRevision", "currentRevision", "kvFingerprint")


class PoolIndex:
    """Tasks by pool, pools by decoder, and what the pods of each pool were said to have loaded."""

    def __init__(self) -> None:
        self._users: dict[Key, PoolUser] = {}  # by SunModel
        self._of_pool: dict[Key, set[Key]] = {}
        self._decoders: dict[Key, Key] = {}  # of each pool
        self._facts: dict[Key, object] = {}
        self._loaded: dict[tuple[str, str], frozenset[str]] = {}  # of Ready pods, by namespace and name

    def users(self, pool: Key) -> tuple[PoolUser, ...]:
        """SunModels that referred to a pool or had adapters in it when last seen, oldest first."""
        found = (self._users[key] for key in self._of_pool.get(pool, ()))
        return tuple(sorted(found, key=lambda user: (user.since, user.key)))

    def of_decoder(self, decoder: Key) -> frozenset[Key]:
        return frozenset(pool for pool, named in self._decoders.items() if named == decoder)

    def model_changed(self, live: Json, *, gone: bool) -> frozenset[Key]:
        """Take in a SunModel; the pools that this concerns."""
        key = key_of(MODEL, live)
        before = self._users.pop(key, None)
        after = None if gone else PoolUser.of(key, live)
        for pool in before.pools if before else ():
            self._of_pool[pool].discard(key)
            if not self._of_pool[pool]:
                del self._of_pool[pool]
        if after is None or not after.pools:
            return before.pools if before else frozenset()
        self._users[key] = after
        for pool in after.pools:
            self._of_pool.setdefault(pool, set()).add(key)
        return frozenset() if before == after else after.pools | (before.pools if before else frozenset())

    def pool_changed(self, live: Json, *, gone: bool) -> frozenset[Key]:
        """Take in a PrefillPool; its tasks if anything changed that they depend on."""
        key = key_of(POOL, live)
        facts = None if gone else _facts(live)
        if gone:
            self._decoders.pop(key, None)
        else:
            self._decoders[key] = decoder_of(live)
        if self._facts.get(key) == facts:
            return frozenset()
        self._facts[key] = facts
        return frozenset(self._of_pool.get(key, ()))

    def pod_changed(self, pod: Json, *, gone: bool) -> frozenset[Key]:
        """Take in a pod; the tasks whose adapters it has begun or ceased to serve."""
        name = labels_of(pod).get(names.LABEL_POOL)
        if not name:
            return frozenset()
        place = (namespace_of(pod), str(metadata(pod)["name"]))
        serves = not gone and not is_terminating(pod) and ready_since(pod) is not None
        after = announced(metadata(pod), status_of(pod)) if serves else frozenset()
        before = self._loaded.pop(place, frozenset())
        if after:
            self._loaded[place] = after
        changed = before ^ after
        users = self._of_pool.get(Key(POOL, namespace_of(pod), name), set()) if changed else set()
        return frozenset(key for key in users if changed & self._users[key].names)

    def clear(self) -> None:
        """Start over. What pods have loaded is known from their events alone, which go on."""
        self._users.clear()
        self._of_pool.clear()
        self._decoders.clear()
        self._facts.clear()


def _facts(live: Json) -> object:
    """What decides about tasks: who may share it, what its pods are, whether they sleep, whether it goes."""
    status, spec = status_of(live), spec_of(live)
    ready: Json = next((c for c in status.get("conditions") or () if c.get("type") == "Ready"), {})
    return (
        [spec.get(field) for field in ("allowedModels", "lora", "decoderRef", "template")],
        [status.get(field) for field in _POOL_FACTS],
        (ready.get("status"), ready.get("reason")),
        is_terminating(live),
        metadata(live)["uid"],
    )
