"""What one reconcile knows: everything it read, frozen. The plan sees nothing else of the world but the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sunfleet_api.conditions import ConditionType, Reason
from sunfleet_api.pooling import Held
from sunfleet_operator.build.network import Visitors
from sunfleet_operator.build.weights import Fetcher
from sunfleet_operator.figures import ByRevision
from sunfleet_operator.heard import Heard
from sunfleet_operator.references import canary_decoder_of, decoder_of, pool_of, routed_decoders
from sunfleet_operator.told import Told
from sunfleet_operator.types import POOL, Json, Key, full_name, is_terminating, metadata, runs_engine, status_of


@dataclass(frozen=True)
class Children:
    """Live objects in the owner's namespace that it controls (owner reference), and their pods.

    ``service``, ``budget`` and ``policy`` are whatever stands under their names; the budget is not looked for before
    there are pods. ``predecessor``: children of an
    earlier owner of this name are still there; the garbage collector is about to remove them. ``complaints``: by
    the name of a Job without pods, why it gets none. ``progress``: by the
    name of a pod, how far its download is.
    """

    deployments: tuple[Json, ...] = ()
    jobs: tuple[Json, ...] = ()
    pods: tuple[Json, ...] = ()
    records: tuple[Json, ...] = ()
    service: Json | None = None
    budget: Json | None = None
    policy: Json | None = None
    predecessor: bool = False
    complaints: Mapping[str, str] = field(default_factory=dict)
    progress: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_pods(self) -> bool:
        """Engine pods, as far as one can tell: those themselves, or their Deployment's word."""
        counted = any(status_of(live).get("replicas") for live in self.deployments)
        return counted or any(runs_engine(pod) for pod in self.pods)


@dataclass(frozen=True)
class FoundProfile:
    """A ServingProfile that an object names; ``live`` is None when there is none in the namespaces that count."""

    name: str
    live: Json | None


@dataclass(frozen=True)
class Defaults:
    """Settings of the operator that end up in new children."""

    engine_image: str
    fetcher: Fetcher
    pull_policy: str = ""
    profile_namespace: str = ""  # ServingProfiles there are for objects of every namespace
    engine_key: str = ""  # Secret with the key that engines ask for
    engine_tls: str = ""  # Secret with which engines speak TLS
    visitors: Visitors | None = None  # without them no NetworkPolicies are made
    tuner_image: str = ""


@dataclass(frozen=True)
class User:
    """What a decoder knows of one SunModel of any namespace that refers to it or routes to it."""

    name: str  # namespace/name
    attached: bool = True  # refers to the decoder, and was not told that it may not
    routes: bool = False  # by status.traffic
    terminating: bool = False
    kv_digest: str = ""  # of the KV that its serving revision makes

    @classmethod
    def of(cls, decoder: Key, model: Json) -> User:
        own, beside = decoder_of(model) == decoder, canary_decoder_of(model) == decoder
        status = status_of(model)
        told = status if own or not beside else status.get("canary") or {}
        return cls(
            name=full_name(model),
            attached=(own and not _refused(model)) or beside,
            routes=decoder in routed_decoders(model),
            terminating=is_terminating(model),
            kv_digest=str((told.get("kvFingerprint") or {}).get("digest") or ""),
        )

    @property
    def holds(self) -> bool:
        """Whether the decoder has to stay for it. Else any tenant could keep a decoder of others from being deleted."""
        return (self.attached or self.routes) and not self.terminating


def _refused(model: Json) -> bool:
    """Whether the decoder's ``allowedModels`` refuses it, as its own status says of the present spec."""
    refusal = (str(ConditionType.RESOLVED_REFS), str(Reason.NOT_ALLOWED_BY_DECODER), metadata(model).get("generation"))
    conditions = status_of(model).get("conditions") or ()
    return any((c.get("type"), c.get("reason"), c.get("observedGeneration")) == refusal for c in conditions)


@dataclass(frozen=True)
class Needs:
    """What a task's reconcile has to read besides, which its own spec and profiles decide."""

    config_map: str = ""  # name, in the task's namespace
    decode_pods: bool = False
    canary_decoder: Key | None = None


@dataclass(frozen=True)
class Beside:
    """The decoder that a canary brings along: see :class:`ObservedModel`."""

    decoder: Json | None = None
    contract: Json | None = None
    deployments: tuple[Json, ...] = ()
    pods: tuple[Json, ...] = ()
    served: bool = True


@dataclass(frozen=True)
class Adapter:
    """One revision of a task, as pods of a PrefillPool hold it."""

    name: str
    uri: str  # resolved
    digest: str


@dataclass(frozen=True)
class PoolUser:
    """What PrefillPools know of one SunModel: its adapters, by pool, as its own reconcile has allowed them."""

    key: Key
    since: str  # creation: where room is short the oldest stay
    attached: Key | None  # the pool that it refers to
    adapters: Mapping[Key, tuple[Adapter, ...]]

    @classmethod
    def of(cls, key: Key, model: Json) -> PoolUser:
        found: dict[Key, tuple[Adapter, ...]] = {}
        for one in () if is_terminating(model) else status_of(model).get("adapters") or ():
            namespace, _, name = str(one.get("pool", "")).partition("/")
            pool, adapter = Key(POOL, namespace, name), Adapter(one["name"], one["uri"], one["digest"])
            found[pool] = (*found.get(pool, ()), adapter)
        return cls(key, str(metadata(model).get("creationTimestamp") or ""), pool_of(model), found)

    @property
    def pools(self) -> frozenset[Key]:
        """Every pool that it refers to or has adapters in."""
        return frozenset(self.adapters) | ({self.attached} if self.attached else set())

    @property
    def names(self) -> frozenset[str]:
        return frozenset(adapter.name for given in self.adapters.values() for adapter in given)


@dataclass(frozen=True)
class Fault:
    """Why no pod of a pool has an adapter."""

    reason: str
    message: str


@dataclass(frozen=True)
class ObservedDecoder:
    """A SharedDecoder and its surroundings."""

    key: Key
    live: Json
    children: Children = field(default_factory=Children)
    users: tuple[User, ...] = ()
    namespace_terminating: bool = False
    profiles: tuple[FoundProfile, ...] = ()
    told: Told | None = None
    heard: Heard | None = None


@dataclass(frozen=True)
class ObservedTuning:
    """A PrefillTuning, the decoder that ``decoderRef`` names with the record of what it publishes, and its own Job.

    ``log`` is the end of the log of the pod that speaks for the run, empty while none runs. ``predecessor``: as for
    :class:`Children`.
    """

    key: Key
    live: Json
    decoder: Json | None = None
    contract: Json | None = None
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    decoder_served: bool = True
    job: Json | None = None
    pods: tuple[Json, ...] = ()
    log: str = ""
    predecessor: bool = False


@dataclass(frozen=True)
class ObservedProfile:
    """A ServingProfile, and how many objects refer to it."""

    live: Json
    attached: int = 0


@dataclass(frozen=True)
class ObservedNamespace:
    """A Namespace and the pods in it that are ours: of engines and of resolvers."""

    live: Json
    pods: tuple[Json, ...] = ()


@dataclass(frozen=True)
class ObservedModel:
    """A SunModel and its surroundings.

    ``decoder`` is the object that ``decoderRef`` names; ``contract`` the ControllerRevision of that decoder's update
    revision; ``decoder_deployments`` its Deployments. ``rivals`` are other SunModels with the same model name.
    """

    key: Key
    live: Json
    children: Children = field(default_factory=Children)
    decoder: Json | None = None
    contract: Json | None = None
    decoder_deployments: tuple[Json, ...] = ()
    rivals: tuple[Json, ...] = ()
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    profiles: tuple[FoundProfile, ...] = ()
    decoder_served: bool = True  # its namespace is one of those that this operator serves
    decode_pods: tuple[Json, ...] = ()  # of the decoder, where they are needed
    config_map: Json | None = None  # of golden prompts, where one is named
    beside: Beside | None = None  # where the canary names a decoder
    measured: ByRevision | None = None  # while a canary gets requests
    told: Told | None = None
    heard: Heard | None = None  # where routers are asked
    pool: Json | None = None  # the object that prefill.adapter.poolRef names
    pool_pods: tuple[Json, ...] = ()
    pool_served: bool = True  # as decoder_served
    pool_faults: Mapping[str, Fault] = field(default_factory=dict)  # by adapter


@dataclass(frozen=True)
class ObservedPool:
    """A PrefillPool and its surroundings. The decoder's part is that of :class:`ObservedModel`.

    ``held``: by pod name, what each pod with a running engine says of its adapters, ``None`` where it does not answer.
    """

    key: Key
    live: Json
    children: Children = field(default_factory=Children)
    decoder: Json | None = None
    contract: Json | None = None
    decoder_deployments: tuple[Json, ...] = ()
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    profiles: tuple[FoundProfile, ...] = ()
    decoder_served: bool = True
    users: tuple[PoolUser, ...] = ()
    held: Mapping[str, Held | None] = field(default_factory=dict)
    told: Told | None = None

    def as_task(self, live: Json) -> ObservedModel:
        """The same as of a task with pods of its own: what is asked of the decoder is asked alike."""
        return ObservedModel(
            self.key, live, self.children, self.decoder, self.contract, self.decoder_deployments,
            namespace_labels=self.namespace_labels, profiles=self.profiles, decoder_served=self.decoder_served,
        )  # fmt: skip
