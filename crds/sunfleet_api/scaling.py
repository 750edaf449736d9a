"""Replicas over time: autoscaling, roll-outs, and what the scaler reports."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from sunfleet_api.base import ApiModel
from sunfleet_api.markers import ATOMIC, ATOMIC_MAP, Cel, Instead, int_or_string

Seconds = Annotated[int, Field(ge=0, le=604_800)]
Percent = Annotated[int, Field(ge=0, le=100)]
Replicas = Annotated[int, Field(ge=0, le=10_000)]
IntOrPercent = Annotated[int | str, int_or_string("^(100|[1-9]?[0-9])%$", maximum=10_000)]


class Targets(ApiModel):
    """What the built-in scaler aims for."""

    queue_seconds: int | None = Field(default=None, ge=1, le=3600)
    """Prefill: how long a prompt may wait for its pod. Default: 2."""
    kv_utilization_percent: int | None = Field(default=None, ge=1, le=100)
    """Decode: reserved share of the KV cache. Default: 80."""


class ScalingPolicy(ApiModel):
    type: Literal["Pods", "Percent"]
    """Whether value counts pods or percent of them."""
    value: int = Field(ge=1, le=10_000)
    """Largest change within the period."""
    period_seconds: int = Field(ge=1, le=1800)
    """Length of the period."""


class ScalingRules(ApiModel):
    """As HPAScalingRules of autoscaling/v2."""

    stabilization_window_seconds: int | None = Field(default=None, ge=0, le=3600)
    """Past decisions that are considered, so that counts do not flap."""
    select_policy: Literal["Max", "Min", "Disabled"] | None = None
    """Which policy wins; Disabled forbids this direction."""
    policies: Annotated[tuple[ScalingPolicy, ...], Field(max_length=16), ATOMIC] = ()
    """Limits on the rate of change."""
    tolerance: Annotated[
        int | str | None,
        Instead({"x-kubernetes-int-or-string": True, "maxLength": 16, "pattern": r"^[0-9]+(\.[0-9]+)?m?$"}),
    ] = None
    """Relative change of the metric below which nothing happens, such as "0.1" (a quantity)."""


class Behavior(ApiModel):
    """As HorizontalPodAutoscalerBehavior of autoscaling/v2."""

    scale_up: ScalingRules | None = None
    """Rules for more replicas."""
    scale_down: ScalingRules | None = None
    """Rules for fewer replicas."""


class ScaleToZero(ApiModel):
    idle_seconds: int = Field(default=900, ge=1, le=604_800)
    """No request for so long means zero replicas; the clock begins when the first pod is Ready."""


ZERO_NEEDS_NO_MINIMUM: Final = Cel(
    "!has(self.scaleToZero) || (has(self.minReplicas) && self.minReplicas == 0)",
    "scaleToZero needs minReplicas: 0",
    ".scaleToZero",
)


class Autoscaling(ApiModel):
    """Who decides the replica count, and within which limits."""

    RULES: ClassVar[tuple[Cel, ...]] = (
        Cel(
            "!has(self.minReplicas) || self.minReplicas <= self.maxReplicas",
            "minReplicas must not be greater than maxReplicas",
            ".minReplicas",
        ),
        ZERO_NEEDS_NO_MINIMUM,
    )

    mode: Literal["BuiltIn", "External"] = "BuiltIn"
    """BuiltIn: the operator. External: an HPA or KEDA writes spec.replicas through /scale of this object."""
    min_replicas: Replicas = 1
    """Least count. With 0 one pod still stays, unless scaleToZero says when it goes."""
    max_replicas: int = Field(ge=1, le=10_000)
    """Greatest count."""
    targets: Targets = Field(default_factory=Targets)
    behavior: Behavior = Field(default_factory=Behavior)
    """Vocabulary of autoscaling/v2."""
    scale_to_zero: ScaleToZero | None = None
    """When all replicas go; the next request brings them back. Default: never."""
    metrics_timeout_seconds: int = Field(default=120, ge=1, le=86_400)
    """Metrics older than this are no metrics; so long the count is held before the fallback."""
    fallback: Annotated[int | Literal["Hold"], int_or_string("^Hold$", maximum=10_000)] = "Hold"
    """Without metrics: Hold keeps the present count, a number is the least count to go to. Never fewer than now."""
    prediction: Literal["Off", "Trend"] = "Off"
    """Trend: also scale for the need that would be there once a new pod is Ready, if it goes on growing as it does."""
    dry_run: bool = False
    """Decide and report, but change nothing."""


class Rollout(ApiModel):
    """How a new revision replaces the old one."""

    RULES: ClassVar = (
        Cel(
            "!(has(self.maxSurge) && string(self.maxSurge) in ['0', '0%'] && "
            "(!has(self.maxUnavailable) || string(self.maxUnavailable) in ['0', '0%']))",
            "maxSurge and maxUnavailable must not both be 0 (maxUnavailable is 0 unless set)",
            ".maxUnavailable",
        ),
    )

    max_surge: IntOrPercent = 1
    """Pods above the wanted count during a roll-out, a count or "25%"; 0 stops the old revision first."""
    max_unavailable: IntOrPercent = 0
    """Pods that may be missing during a roll-out, a count or "25%"."""
    drain_timeout_seconds: int = Field(default=300, ge=0, le=86_400)
    """How long a pod may finish its streams after SIGTERM."""
    progress_deadline_seconds: int = Field(default=1800, ge=1, le=604_800)
    """A roll-out without progress for so long has failed."""
    revision_history_limit: int = Field(default=5, ge=0, le=100)
    """Old revisions kept for a rollback."""
    engine_upgrade: Literal["Manual", "Automatic"] = "Manual"
    """Whether a new operator may roll these pods to its engine image."""
    profile_updates: Literal["Manual", "Automatic"] = "Manual"
    """Whether an edit of a ServingProfile may roll these pods."""


class ScalingStatus(ApiModel):
    """Who decides the count, which count is in effect, and the built-in scaler's last decision."""

    mode: Literal["", "Fixed", "BuiltIn", "External"] = ""
    """Who decided last; a switch never changes the count by itself."""
    replicas: int | None = None
    """Count in effect."""
    spec_replicas: int | None = None
    """spec.replicas when the count in effect was settled; once it is another one, it counts again."""
    desired_replicas: int | None = None
    """Count that the scaler wants; with dryRun, a pause or a budget not the one in effect."""
    last_decision_time: str = Field(default="", max_length=64)
    """When it last changed its mind, RFC 3339."""
    reason: str = Field(default="", max_length=1024)
    """Why."""
    inputs: Annotated[dict[str, Annotated[str, Field(max_length=64)]], Field(max_length=32), ATOMIC_MAP] = Field(
        default_factory=dict
    )
    """Figures that led to it, as decimal strings."""
