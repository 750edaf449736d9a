"""PrefillPool: prefill pods over one base checkpoint, shared by many tasks that are LoRA adapters over it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from sunfleet_api.base import ApiModel, Kind, Resource
from sunfleet_api.conditions import Conditions
from sunfleet_api.digests import KVFingerprint, ShortText
from sunfleet_api.markers import SERVER_DEFAULTED, SET, Cel
from sunfleet_api.naming import NAME_RULES
from sunfleet_api.refs import AllowedModels, NameRef, ObjectName, ObjectRef, ProfileRefs
from sunfleet_api.scaling import Autoscaling, Replicas, Rollout, ScalingStatus
from sunfleet_api.template import GRACE_COVERS_DRAIN, PodTemplate
from sunfleet_api.weights import WeightsSource

PREFILL_POOL: Final = Kind("PrefillPool", "prefillpools", "prefillpool", ("spool",))

DEFAULT_PER_BATCH: Final = 8
_ModuleName = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_.]+$")]


class Lora(ApiModel):
    """What adapters may be, how many a pod holds, and how pods come by them. Changing it is a new revision of the pods,
    but for copies."""

    RULES: ClassVar = (
        Cel(
            "!has(self.maxPerBatch) || self.maxPerBatch <= (has(self.maxLoadedPerPod) ? self.maxLoadedPerPod : 32)",
            "maxPerBatch must not be greater than maxLoadedPerPod (32 unless set)",
            ".maxPerBatch",
        ),
    )

    max_rank: int = Field(default=64, ge=1, le=512)
    """Largest rank of an adapter; pods reserve memory for it."""
    max_loaded_per_pod: int = Field(default=32, ge=1, le=1024)
    """Adapters that one pod holds at most."""
    max_per_batch: int | None = Field(default=None, ge=1, le=256)
    """Adapters that one batch of a pod may mix; each takes accelerator memory. Default: 8, or fewer."""
    copies: int = Field(default=1, ge=1, le=100)
    """Pods that hold each adapter at least, while there are so many and all adapters fit; room beyond that goes to the
    busiest."""
    target_modules: Annotated[tuple[_ModuleName, ...], Field(max_length=32), SET] = ()
    """Modules that adapters may change, such as q_proj. Default: every one that the engine knows."""
    claims: Annotated[tuple[ObjectName, ...], Field(max_length=16), SET] = ()
    """Claims of this namespace that hold the adapters of pvc:// URIs; each is mounted into every pod, read-only."""
    credentials_secret_ref: NameRef | None = None
    """Secret of this namespace with which pods download adapters, whatever task they belong to."""

    @property
    def per_batch(self) -> int:
        """Adapters in one batch at most."""
        return self.max_per_batch or min(DEFAULT_PER_BATCH, self.max_loaded_per_pod)


class PrefillPoolSpec(ApiModel):
    RULES: ClassVar = (GRACE_COVERS_DRAIN,)

    profile_refs: ProfileRefs = ()
    """ServingProfiles, of this namespace or the operator's; a later one wins, and this spec wins over all."""
    decoder_ref: ObjectRef
    """The SharedDecoder whose tasks these pods serve; in another namespace only if its allowedModels says so."""
    model: WeightsSource
    """The base checkpoint beneath the adapters, in 16 bits also where the decoder is quantised."""
    lora: Lora = Field(default_factory=Lora)
    allowed_models: Annotated[AllowedModels, SERVER_DEFAULTED] = Field(default_factory=AllowedModels)
    """Which namespaces' SunModels may share these pods."""
    replicas: Annotated[Replicas, SERVER_DEFAULTED] = 1
    """Prefill pods, unless autoscaling.mode is BuiltIn. Target of /scale."""
    autoscaling: Autoscaling | None = None
    rollout: Rollout = Field(default_factory=Rollout)
    template: PodTemplate = Field(default_factory=PodTemplate)
    paused: bool = False
    """The operator observes and reports, but changes no child and loads no adapter."""


class PoolModelStatus(ApiModel):
    """What the URI of the base checkpoint was resolved to."""

    resolved_uri: ShortText = ""
    """The URI with its revision pinned."""
    digest: str = Field(default="", max_length=128)
    """sha256 over the checkpoint's files."""


class PrefillPoolStatus(ApiModel):
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
    selector: ShortText = ""
    """Label selector of the prefill pods, for /scale."""
    current_revision: str = Field(default="", max_length=63)
    """Revision that serves."""
    update_revision: str = Field(default="", max_length=63)
    """Revision that the spec asks for."""
    model: PoolModelStatus = Field(default_factory=PoolModelStatus)
    kv_fingerprint: KVFingerprint = Field(default_factory=KVFingerprint)
    attached_models: int = 0
    """SunModels that refer to this pool and may: select them by label."""
    wanted_adapters: int = 0
    """Adapters that attached SunModels ask for."""
    loaded_adapters: int = 0
    """Of these, how many some Ready pod has loaded."""
    scaling: ScalingStatus | None = None


class PrefillPool(Resource):
    """Prefill pods of one base checkpoint, shared by the tasks that are LoRA adapters over it."""

    KIND: ClassVar = PREFILL_POOL
    RULES: ClassVar = NAME_RULES

    spec: PrefillPoolSpec
    """What is wanted."""
    status: PrefillPoolStatus = Field(default_factory=PrefillPoolStatus)
    """What was observed."""
