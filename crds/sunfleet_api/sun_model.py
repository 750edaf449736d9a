"""SunModel: one task, its prefill module, and how its requests are served."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from sunfleet_api.base import ApiModel, Kind, Resource
from sunfleet_api.canary import Canary, CanaryStatus
from sunfleet_api.conditions import Conditions
from sunfleet_api.digests import KVFingerprint, ShortText
from sunfleet_api.markers import SERVER_DEFAULTED, Cel, list_map
from sunfleet_api.naming import NAME_RULES
from sunfleet_api.prefill import Prefill
from sunfleet_api.refs import ObjectRef, ProfileRefs
from sunfleet_api.scaling import Autoscaling, Replicas, Rollout, ScalingStatus
from sunfleet_api.template import GRACE_COVERS_DRAIN, PodTemplate
from sunfleet_api.traffic import Generation, Traffic, TrafficTarget
from sunfleet_api.verification import Verification, VerificationStatus

SUN_MODEL: Final = Kind("SunModel", "sunmodels", "sunmodel", ("sun",))

_POOLED: Final = "has(self.prefill.adapter) && has(self.prefill.adapter.poolRef)"


def _refused_with_pool(forbidden: str, field: str) -> Cel:
    return Cel(
        f"!({_POOLED}) || !({forbidden})",
        f"{field} belongs to the PrefillPool when prefill.adapter.poolRef is set: leave it out here",
        f".{field}",
    )


_TRIED: Final = "self.canary.prefill.adapter.poolRef"
_OWN: Final = "self.prefill.adapter.poolRef"
# Field by field, since types of two places of a schema are not comparable. CEL keeps the word namespace for itself.
_SAME_POOL: Final = (
    f"{_TRIED}.name == {_OWN}.name && (has({_TRIED}.__namespace__)"
    f" ? has({_OWN}.__namespace__) && {_TRIED}.__namespace__ == {_OWN}.__namespace__ : !has({_OWN}.__namespace__))"
)


class SunModelSpec(ApiModel):
    RULES: ClassVar = (
        Cel(
            "!has(self.canary) || !has(self.canary.prefill) || !has(self.canary.prefill.adapter) || "
            f"!has({_TRIED}) || ({_POOLED} && {_SAME_POOL})",
            "a canary stands in the task's own PrefillPool: write the poolRef of prefill.adapter, or leave it out",
            ".canary",
        ),
        _refused_with_pool("self.replicas != 1", "replicas"),
        _refused_with_pool("has(self.autoscaling)", "autoscaling"),
        _refused_with_pool("has(self.rollout) && has(self.rollout.maxSurge)", "rollout.maxSurge"),
        _refused_with_pool("has(self.rollout) && has(self.rollout.maxUnavailable)", "rollout.maxUnavailable"),
        _refused_with_pool("has(self.template)", "template"),
        GRACE_COVERS_DRAIN,
    )

    model_name: str | None = Field(
        default=None, min_length=1, max_length=128, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._:/-]*[A-Za-z0-9])?$"
    )
    """The OpenAI "model". Default: metadata.name. Immutable; the oldest of equal names is served."""
    profile_refs: ProfileRefs = ()
    """ServingProfiles, of this namespace or the operator's; a later one wins, and this spec wins over all."""
    decoder_ref: ObjectRef
    """The SharedDecoder; in another namespace only if its allowedModels says so."""
    prefill: Prefill
    replicas: Annotated[Replicas, SERVER_DEFAULTED] = 1
    """Prefill pods, unless autoscaling.mode is BuiltIn. Target of /scale."""
    autoscaling: Autoscaling | None = None
    rollout: Rollout = Field(default_factory=Rollout)
    template: PodTemplate = Field(default_factory=PodTemplate)
    traffic: Traffic = Field(default_factory=Traffic)
    generation: Generation = Field(default_factory=Generation)
    """Sampling of requests that do not say."""
    verification: Verification | None = None
    canary: Canary | None = None
    paused: bool = False
    """The operator observes and reports, but changes no child and no traffic."""


class PrefillModelStatus(ApiModel):
    """What the prefill URI was resolved to."""

    resolved_uri: ShortText = ""
    """The URI with its revision pinned."""
    digest: str = Field(default="", max_length=128)
    """sha256 over the module's files."""
    tuned_against: str = Field(default="", max_length=128)
    """Decoder digest that the module was tuned against; empty when its files do not say."""


class PooledAdapter(ApiModel):
    """One revision's adapter, for the pods of a PrefillPool."""

    name: str = Field(min_length=1, max_length=128)
    """Under which the pods load it; names the revision."""
    pool: str = Field(min_length=3, max_length=320)
    """namespace/name of the PrefillPool."""
    uri: ShortText
    """The URI with its revision pinned."""
    digest: str = Field(min_length=1, max_length=128)
    """sha256 over its files."""


class SunModelStatus(ApiModel):
    observed_generation: int = 0
    """Generation of the spec that this status speaks of."""
    conditions: Conditions = ()
    """What holds and what does not, by type."""
    replicas: int = 0
    """Prefill pods that exist."""
    ready_replicas: int = 0
    """Prefill pods that are Ready."""
    updated_replicas: int = 0
    """Prefill pods of the update revision."""
    model_name: str = Field(default="", max_length=128)
    """The OpenAI "model" in effect."""
    selector: ShortText = ""
    """Label selector of this object's own prefill pods, for /scale."""
    current_revision: str = Field(default="", max_length=63)
    """Revision that serves."""
    update_revision: str = Field(default="", max_length=63)
    """Revision that the spec asks for."""
    traffic: Annotated[tuple[TrafficTarget, ...], Field(max_length=8), list_map("revision")] = ()
    """The only thing that routers act on."""
    adapters: Annotated[tuple[PooledAdapter, ...], Field(max_length=8), list_map("name")] = ()
    """With a poolRef: what the pool's pods shall hold for this task, of the serving and the update revision."""
    model: PrefillModelStatus = Field(default_factory=PrefillModelStatus)
    kv_fingerprint: KVFingerprint = Field(default_factory=KVFingerprint)
    verification: VerificationStatus | None = None
    """Result of the golden prompts."""
    canary: CanaryStatus | None = None
    """How far the canary has come."""
    effective_traffic: Traffic | None = None
    """`spec.traffic` over that of the ServingProfiles, where there are any: what routers go by."""
    scaling: ScalingStatus | None = None


class SunModel(Resource):
    """One task: a name that clients ask for, a prefill module, and the decoder that generates for it."""

    KIND: ClassVar = SUN_MODEL
    RULES: ClassVar = (
        *NAME_RULES,
        Cel(
            "(has(self.spec.modelName) ? self.spec.modelName : self.metadata.name) == "
            "(has(oldSelf.spec.modelName) ? oldSelf.spec.modelName : oldSelf.metadata.name)",
            "modelName (metadata.name unless set) is immutable: make another SunModel instead",
            ".spec",
        ),
    )

    spec: SunModelSpec
    """What is wanted."""
    status: SunModelStatus = Field(default_factory=SunModelStatus)
    """What was observed."""

    @property
    def traffic_limits(self) -> Traffic:
        """What routers go by."""
        return self.status.effective_traffic or self.spec.traffic

    @property
    def model_name(self) -> str:
        """The OpenAI model name in effect."""
        return self.spec.model_name or self.metadata.name
