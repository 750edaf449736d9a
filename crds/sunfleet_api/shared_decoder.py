"""SharedDecoder: the frozen decode module, its pool of pods, and the engine contract that attached prefill inherits."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from sunfleet_api.base import ApiModel, Kind, Resource
from sunfleet_api.conditions import Conditions
from sunfleet_api.digests import KVFingerprint, ShortText
from sunfleet_api.engine import EngineSpec
from sunfleet_api.markers import IMMUTABLE, SERVER_DEFAULTED, Cel, Instead, list_map, present_before_and_after
from sunfleet_api.naming import NAME_RULES
from sunfleet_api.refs import AllowedModels, NameRef, ProfileRefs
from sunfleet_api.scaling import Autoscaling, Replicas, Rollout, ScalingStatus
from sunfleet_api.template import GRACE_COVERS_DRAIN, PodTemplate
from sunfleet_api.weights import Subset, Uri, WeightsSource

SHARED_DECODER: Final = Kind("SharedDecoder", "shareddecoders", "shareddecoder", ("sdec",))

_OPAQUE: Final = Instead(
    {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "description": 'Overlay over the pods of the Job, whose container is named "tuner".',
    }
)


class DecoderModel(WeightsSource):
    """The base checkpoint. The Secret may change, the URI may not."""

    uri: Annotated[Uri, IMMUTABLE]
    """hf://ORG/NAME@REVISION, pvc://CLAIM/PATH, s3://, gs://, oci:// or file://. Immutable."""


class Calibration(ApiModel):
    RULES: ClassVar = (present_before_and_after("subset"), present_before_and_after("samples"))

    uri: Annotated[Uri, IMMUTABLE]
    """Texts to calibrate on."""
    subset: Annotated[Subset | None, IMMUTABLE] = None
    """Configuration of a Hugging Face dataset that has several."""
    samples: Annotated[int, IMMUTABLE] = Field(default=512, ge=1, le=100_000)
    """How many texts."""


class Quantization(ApiModel):
    """Weight-only quantisation of the decoder by a Job (QSUN). Immutable, but for the template."""

    RULES: ClassVar = (present_before_and_after("groupSize"), present_before_and_after("calibration"))

    scheme: Annotated[Literal["W4A16"], IMMUTABLE]
    """W4A16: 4-bit weights, 16-bit activations."""
    group_size: Annotated[int, IMMUTABLE] = Field(default=128, ge=16, le=1024)
    """Weights that share one scale."""
    calibration: Calibration | None = None
    """Texts for schemes that calibrate."""
    output_uri: Annotated[Uri, IMMUTABLE]
    """Where the quantised checkpoint goes: pvc://CLAIM/PATH, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX."""
    credentials_secret_ref: NameRef | None = None
    """Secret in the same namespace that may write there and read the calibration texts."""
    template: Annotated[dict[str, Any], _OPAQUE] = Field(default_factory=dict)


class GpuBudget(ApiModel):
    """Upper bound for the pool and all attached prefill together; terminating pods count."""

    resource_name: str = Field(min_length=1, max_length=316)
    """Extended resource, such as nvidia.com/gpu."""
    limit: int = Field(ge=0, le=100_000)
    """How many units of it."""


class SharedDecoderSpec(ApiModel):
    RULES: ClassVar = (
        present_before_and_after("engine.dtype"),
        present_before_and_after("engine.kvCacheDtype"),
        present_before_and_after("engine.blockSize"),
        present_before_and_after("quantization"),
        Cel(
            "!has(self.autoscaling) || !has(self.autoscaling.minReplicas) || self.autoscaling.minReplicas >= 1",
            "a decode pool serves every task and never scales to zero: minReplicas must be at least 1",
            ".autoscaling.minReplicas",
        ),
        Cel(
            "!has(self.autoscaling) || !has(self.autoscaling.scaleToZero)",
            "a decode pool serves every task and never scales to zero",
            ".autoscaling.scaleToZero",
        ),
        GRACE_COVERS_DRAIN,
    )

    profile_refs: ProfileRefs = ()
    """ServingProfiles, of this namespace or the operator's; a later one wins, and this spec wins over all."""
    model: DecoderModel
    quantization: Quantization | None = None
    engine: EngineSpec = Field(default_factory=EngineSpec)
    replicas: Annotated[Replicas, SERVER_DEFAULTED] = 1
    """Decode pods, unless autoscaling.mode is BuiltIn. Target of /scale."""
    autoscaling: Autoscaling | None = None
    gpu_budget: Annotated[tuple[GpuBudget, ...], Field(max_length=8), list_map("resourceName")] = ()
    """Limits per resource, for the pool and its attached prefill together."""
    rollout: Rollout = Field(default_factory=Rollout)
    template: PodTemplate = Field(default_factory=PodTemplate)
    allowed_models: Annotated[AllowedModels, SERVER_DEFAULTED] = Field(default_factory=AllowedModels)
    """Which namespaces' SunModels may attach."""
    paused: bool = False
    """The operator observes and reports, but changes no child."""


class DecoderModelStatus(ApiModel):
    """What the URI was resolved to; the record itself is an owned ControllerRevision."""

    resolved_uri: ShortText = ""
    """The URI with its revision pinned."""
    digest: str = Field(default="", max_length=128)
    """sha256 over the checkpoint's files."""
    quantized_digest: str = Field(default="", max_length=128)
    """sha256 over the quantised checkpoint's files, where there is one."""


class SharedDecoderStatus(ApiModel):
    observed_generation: int = 0
    """Generation of the spec that this status speaks of."""
    conditions: Conditions = ()
    """What holds and what does not, by type."""
    replicas: int = 0
    """Decode pods that exist."""
    ready_replicas: int = 0
    """Decode pods that are Ready."""
    updated_replicas: int = 0
    """Decode pods of the update revision."""
    draining_replicas: int = 0
    """Decode pods that finish their streams before they end."""
    selector: ShortText = ""
    """Label selector of the decode pods, for /scale."""
    current_revision: str = Field(default="", max_length=63)
    """Revision that serves."""
    update_revision: str = Field(default="", max_length=63)
    """Revision that the spec asks for."""
    model: DecoderModelStatus = Field(default_factory=DecoderModelStatus)
    decoder_digest: str = Field(default="", max_length=128)
    """Identity of the decoder's weights as served; prefill modules name the one they were tuned against."""
    kv_fingerprint: KVFingerprint = Field(default_factory=KVFingerprint)
    attached_models: int = 0
    """SunModels that refer to this decoder: select them by label."""
    scaling: ScalingStatus | None = None


class SharedDecoder(Resource):
    """The frozen decode module shared by many tasks, and its pool of pods."""

    KIND: ClassVar = SHARED_DECODER
    RULES: ClassVar = NAME_RULES

    spec: SharedDecoderSpec
    """What is wanted."""
    status: SharedDecoderStatus = Field(default_factory=SharedDecoderStatus)
    """What was observed."""
