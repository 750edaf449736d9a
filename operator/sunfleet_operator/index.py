"""Who refers to whom, from watch events: which keys to run again when something changes. Pure bookkeeping, no requests.

It only *proposes*: a missed deletion leaves an entry behind until the next resync, so whoever uses it reads the
objects again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from sunfleet_api import names
from sunfleet_operator.observed import User
from sunfleet_operator.pool_index import PoolIndex
from sunfleet_operator.references import decoders_of, model_name, profiles_of
from sunfleet_operator.types import (
    DECODER,
    MODEL,
    POOL,
    Json,
    Key,
    is_terminating,
    key_of,
    labels_of,
    metadata,
    namespace_of,
    spec_of,
    status_of,
)  # fmt: skip

_DECODER_FACTS = ("updateRevision", "currentRevision", "decoderDigest", "kvFingerprint")


class Index:
    """SunModels by decoder, pool and model name, and the facts of decoders and pools that their SunModels depend on."""

    def __init__(self) -> None:
        self._decoders: dict[Key, frozenset[Key]] = {}  # of each SunModel
        self._names: dict[Key, str] = {}
        self._users: defaultdict[Key, dict[Key, User]] = defaultdict(dict)  # by decoder
        self._named: defaultdict[str, set[Key]] = defaultdict(set)
        self._profiles: dict[Key, frozenset[str]] = {}  # names that each object refers to
        self._facts: dict[Key, object] = {}  # what others depend on, per object
        self._serving: dict[tuple[str, str], bool] = {}  # decode Deployments (namespace, name)
        self._ready: dict[Key, str] = {}
        self._scaling: set[Key] = set()  # objects that the scaler has to do with
        self.pools = PoolIndex()
        self._news: dict[Key, Json | None] | None = None  # from `listing` to `rebuild`; a value of None is gone

    def users(self, decoder: Key) -> tuple[User, ...]:
        """SunModels that referred or routed to a decoder when last seen."""
        known = self._users.get(decoder, {})
        return tuple(known[key] for key in sorted(known))

    def user_keys(self, decoder: Key) -> frozenset[Key]:
        return frozenset(self._users.get(decoder, ()))

    def profile_users(self, profile: Key, *, everybody: bool) -> frozenset[Key]:
        """Objects that start from a ServingProfile: of its namespace, or, for the operator's, of any."""
        return frozenset(
            key
            for key, wanted in self._profiles.items()
            if profile.name in wanted and (everybody or key.namespace == profile.namespace)
        )

    def profiles_changed(self, kind: str, live: Json, *, gone: bool) -> frozenset[str]:
        """Take in what an object starts from; the names of profiles that it began or ceased to refer to."""
        key = key_of(kind, live)
        before = self._profiles.pop(key, frozenset())
        after = frozenset() if gone else frozenset(profiles_of(live))
        if after:
            self._profiles[key] = after
        return before ^ after

    def rivals(self, key: Key, model: Json) -> frozenset[Key]:
        """Other SunModels that had the same model name when last seen."""
        return frozenset(self._named.get(model_name(model), set()) - {key})

    def model_changed(self, live: Json, *, gone: bool) -> frozenset[Key]:
        """Take in a SunModel; the other keys that this concerns: its decoders, old and new, and its rivals."""
        key = key_of(MODEL, live)
        self._note_news(key, live, gone=gone)
        self._note_ready(key, live, gone=gone)
        before, name = self._decoders.get(key, frozenset()), self._names.get(key)
        after = frozenset() if gone else decoders_of(live)
        self._forget(key)
        if not gone:
            self._decoders[key], self._names[key] = after, model_name(live)
            self._named[model_name(live)].add(key)
            for decoder in after:
                self._users[decoder][key] = User.of(decoder, live)
        facts = None if gone else {decoder: self._users[decoder][key] for decoder in after}
        changed = self._facts.get(key) != facts
        self._facts[key] = facts
        if gone:
            self._facts.pop(key, None)
        concerned = set(before | after) if changed else set()
        if gone or is_terminating(live) or name is None:
            concerned |= self._named.get(name or model_name(live), set()) - {key}
        return frozenset(concerned | self.pools.model_changed(live, gone=gone))

    def pool_changed(self, live: Json, *, gone: bool) -> frozenset[Key]:
        """Take in a PrefillPool; its SunModels if anything changed that they depend on."""
        key = key_of(POOL, live)
        self._note_news(key, live, gone=gone)
        self._note_ready(key, live, gone=gone)
        return self.pools.pool_changed(live, gone=gone)

    def decoder_changed(self, live: Json, *, gone: bool) -> frozenset[Key]:
        """Take in a SharedDecoder; its SunModels if anything changed that they depend on."""
        key = key_of(DECODER, live)
        self._note_news(key, live, gone=gone)
        self._note_ready(key, live, gone=gone)
        facts = None if gone else _decoder_facts(live)
        if self._facts.get(key) == facts:
            return frozenset()
        self._facts[key] = facts
        return self.user_keys(key) | self.pools.of_decoder(key)

    def decode_pods_changed(self, deployment: Json, *, gone: bool) -> frozenset[Key]:
        """Take in a decode Deployment; the SunModels of its decoder when it starts or stops to serve."""
        name = labels_of(deployment).get(names.LABEL_DECODER, "")
        if labels_of(deployment).get(names.LABEL_ROLE) != names.ROLE_DECODE or not name:
            return frozenset()
        place = (namespace_of(deployment), str(metadata(deployment)["name"]))
        serves = not gone and bool(status_of(deployment).get("availableReplicas"))
        if self._serving.get(place, False) == serves:
            return frozenset()
        self._serving[place] = serves
        if gone:
            self._serving.pop(place, None)
        decoder = Key(DECODER, namespace_of(deployment), name)
        return self.user_keys(decoder) | self.pools.of_decoder(decoder)

    @property
    def scaling(self) -> bool:
        """Whether there is anything for the scaler to do."""
        return bool(self._scaling)

    def routed(self) -> tuple[Key, ...]:
        """Everything that routers have to know of."""
        return tuple(key for key in self._ready if key.kind in {MODEL, DECODER})

    def known(self) -> tuple[Key, ...]:
        """Everything of ours that has children."""
        return tuple(self._ready)

    def ready(self, kind: str, status: str) -> int:
        """How many objects of a kind have this status ("True", "False", "Unknown") of ``Ready``."""
        return sum(1 for key, found in self._ready.items() if key.kind == kind and found == status)

    def _note_news(self, key: Key, live: Json, *, gone: bool) -> None:
        if self._news is not None:
            self._news[key] = None if gone else live

    def _note_ready(self, key: Key, live: Json, *, gone: bool) -> None:
        (self._scaling.discard if gone or not scales(live) else self._scaling.add)(key)
        if gone:
            self._ready.pop(key, None)
            return
        conditions = status_of(live).get("conditions") or ()
        self._ready[key] = next((str(c.get("status")) for c in conditions if c.get("type") == "Ready"), "Unknown")

    def listing(self) -> None:
        """Lists for :meth:`rebuild` are about to be read; what the watch says from now on is newer than they are."""
        self._news = {}

    def rebuild(self, models: Iterable[Json], decoders: Iterable[Json], pools: Iterable[Json] = ()) -> None:
        """Start over from complete lists: what is not in them is gone."""
        news, self._news = self._news or {}, None
        self._decoders.clear()
        self._profiles.clear()
        self._names.clear()
        self._users.clear()
        self._named.clear()
        self._facts.clear()
        self._serving.clear()
        self._ready.clear()
        self._scaling.clear()
        self.pools.clear()
        listed = ((MODEL, models), (DECODER, decoders), (POOL, pools))
        latest = {key_of(kind, live): live for kind, found in listed for live in found}
        changed = {MODEL: self.model_changed, DECODER: self.decoder_changed, POOL: self.pool_changed}
        for key, live in (latest | news).items():
            if live is not None:
                changed[key.kind](live, gone=False)
                self.profiles_changed(key.kind, live, gone=False)

    def _forget(self, key: Key) -> None:
        for decoder in self._decoders.pop(key, frozenset()):
            self._users[decoder].pop(key, None)
            if not self._users[decoder]:
                del self._users[decoder]
        name = self._names.pop(key, None)
        if name is not None:
            self._named[name].discard(key)
            if not self._named[name]:
                del self._named[name]


def scales(live: Json) -> bool:
    """Whether the scaler has anything to do with an object."""
    spec = spec_of(live)
    # A profile may say that it scales.
    given = (spec.get(field) for field in ("autoscaling", "gpuBudget", "profileRefs"))
    return any(given) or bool(status_of(live).get("scaling"))


def _decoder_facts(live: Json) -> object:
    """What decides about attached SunModels: who may attach, what is published, whether it goes."""
    status = status_of(live)
    return (
        spec_of(live).get("allowedModels"),
        [status.get(field) for field in _DECODER_FACTS],
        is_terminating(live),
        metadata(live)["uid"],
        # Tasks repeat what it waits for until it publishes something, and only then: its health is not theirs.
        None if status.get("updateRevision") else _ready_condition(live),
    )


def _ready_condition(live: Json) -> tuple[object, object]:
    conditions = status_of(live).get("conditions") or ()
    return next(((c.get("reason"), c.get("message")) for c in conditions if c.get("type") == "Ready"), (None, None))
