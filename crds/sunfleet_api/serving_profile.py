"""ServingProfile: a partial spec that decoders and tasks start from, so that a SunModel is ten lines."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from sunfleet_api.base import ApiModel, Kind, Resource
from sunfleet_api.conditions import Conditions
from sunfleet_api.engine import ExtraArg
from sunfleet_api.markers import Cel, list_map
from sunfleet_api.scaling import ZERO_NEEDS_NO_MINIMUM, Autoscaling, Rollout
from sunfleet_api.template import GRACE_COVERS_DRAIN, PodTemplate
from sunfleet_api.traffic import Traffic
from sunfleet_api.verification import Verification

SERVING_PROFILE: Final = Kind("ServingProfile", "servingprofiles", "servingprofile", ("sprof",), scales=False)


class ProfileEngine(ApiModel):
    """The part of a decoder's engine settings that may change: the KV contract stands in the SharedDecoder alone."""

    image: str | None = Field(default=None, min_length=1, max_length=512)
    """Worker image."""
    max_model_len: int | None = Field(default=None, ge=1, le=16_777_216)
    """Longest prompt plus answer in tokens."""
    tensor_parallel_size: int | None = Field(default=None, ge=1, le=64)
    """GPUs per pod."""
    extra_args: Annotated[tuple[ExtraArg, ...], Field(max_length=32), list_map("name")] = ()
    """Further engine arguments; one of the same name in the SharedDecoder wins."""


class ProfileAutoscaling(Autoscaling):
    """As autoscaling of the object, but maxReplicas may be left to it."""

    RULES: ClassVar = (
        Cel(
            "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            "minReplicas must not be greater than maxReplicas",
            ".minReplicas",
        ),
        ZERO_NEEDS_NO_MINIMUM,
    )

    max_replicas: int | None = Field(default=None, ge=1, le=10_000)  # type: ignore[assignment] # optional here alone
    """Greatest count."""


class ServingProfileSpec(ApiModel):
    RULES: ClassVar = (
        GRACE_COVERS_DRAIN,
        Cel(
            "!has(self.rollout) || !has(self.rollout.profileUpdates)",
            "profileUpdates says whether an object follows its profiles: set it in the object",
            ".rollout.profileUpdates",
        ),
    )

    engine: ProfileEngine | None = None
    """For SharedDecoders."""
    template: PodTemplate | None = None
    """For all kinds."""
    rollout: Rollout | None = None
    """For all kinds."""
    autoscaling: ProfileAutoscaling | None = None
    """For all kinds."""
    traffic: Traffic | None = None
    """For SunModels."""
    verification: Verification | None = None
    """For SunModels."""


class ServingProfileStatus(ApiModel):
    observed_generation: int = 0
    """Generation of the spec that this status speaks of."""
    conditions: Conditions = ()
    """What holds and what does not, by type."""
    attached_objects: int = 0
    """SharedDecoders and SunModels that refer to this profile."""


class ServingProfile(Resource):
    """A preset for SharedDecoders and SunModels of its namespace, or of all when it lies in the operator's."""

    KIND: ClassVar = SERVING_PROFILE

    spec: ServingProfileSpec = Field(default_factory=ServingProfileSpec)
    """What objects start from; what they say themselves wins."""
    status: ServingProfileStatus = Field(default_factory=ServingProfileStatus)
    """What was observed."""
