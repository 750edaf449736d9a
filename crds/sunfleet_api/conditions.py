"""Conditions of both kinds: the type, its vocabulary, and look-ups."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field

from sunfleet_api.base import ApiModel
from sunfleet_api.markers import list_map

ConditionStatus = Literal["True", "False", "Unknown"]
MAX_MESSAGE: Final = 1024  # characters; the schema allows Kubernetes' 32768, people and etcd do not need them


class ConditionType(StrEnum):
    """True is good, except in the last group, whose conditions are present only while there is something to say."""

    READY = "Ready"
    ACCEPTED = "Accepted"
    WEIGHTS_READY = "WeightsReady"
    ROUTER_SYNCED = "RouterSynced"
    SCALING_READY = "ScalingReady"
    # SharedDecoder
    AVAILABLE = "Available"
    KV_CONTRACT_KNOWN = "KVContractKnown"
    # SunModel
    RESOLVED_REFS = "ResolvedRefs"
    DECODER_READY = "DecoderReady"
    PREFILL_READY = "PrefillReady"
    KV_COMPATIBLE = "KVCompatible"
    VERIFIED = "Verified"
    # PrefillTuning
    COMPLETE = "Complete"
    # PrefillPool
    ADAPTERS_LOADED = "AdaptersLoaded"
    # Something to say
    FAILED = "Failed"
    SUSPENDED = "Suspended"
    PROGRESSING = "Progressing"
    PAUSED = "Paused"
    BUDGET_EXCEEDED = "BudgetExceeded"
    FIELDS_IGNORED = "FieldsIgnored"
    DELETION_BLOCKED = "DeletionBlocked"
    PROFILES_OUTDATED = "ProfilesOutdated"


# What it means that a condition is True.
MEANINGS: Final[Mapping[ConditionType, str]] = {
    ConditionType.READY: "Every other condition that counts is True; else its reason is the first failure's.",
    ConditionType.ACCEPTED: "The spec makes sense and is allowed where it stands.",
    ConditionType.WEIGHTS_READY: "The weights' URI was resolved to a revision and a digest.",
    ConditionType.ROUTER_SYNCED: "Every Ready router acts on the present `status.traffic`, or knows the decoder.",
    ConditionType.SCALING_READY: "The count is decided by whom `autoscaling` says, from fresh metrics.",
    ConditionType.AVAILABLE: "Enough decode pods are available.",
    ConditionType.KV_CONTRACT_KNOWN: "Checkpoint, tokenizer and engine are known, hence the KV fingerprint.",
    ConditionType.RESOLVED_REFS: "Everything that the spec refers to exists and may be used.",
    ConditionType.DECODER_READY: "A decode pod that reads this task's KV is available.",
    ConditionType.PREFILL_READY: "Enough prefill pods are available; with reason ScaledToZero none are wanted.",
    ConditionType.KV_COMPATIBLE: "The decoder can read this task's KV; else the message names each difference.",
    ConditionType.VERIFIED: "The golden prompts were answered exactly, or verification is off.",
    ConditionType.COMPLETE: "The run has ended and its artifact is there.",
    ConditionType.FAILED: "The run has ended without an artifact; the message says what to do.",
    ConditionType.SUSPENDED: "`spec.suspend` stops the run.",
    ConditionType.ADAPTERS_LOADED: "Every adapter of the attached tasks is loaded on a Ready pod.",
    ConditionType.PROGRESSING: "A roll-out, or a tuning run, is under way.",
    ConditionType.PAUSED: "`spec.paused` holds the operator back.",
    ConditionType.BUDGET_EXCEEDED: "More pods are wanted than `gpuBudget` allows.",
    ConditionType.FIELDS_IGNORED: "The message names fields that are set and have no effect, and why.",
    ConditionType.PROFILES_OUTDATED: "A ServingProfile has changed or gone since this object took it over.",
    ConditionType.DELETION_BLOCKED: "The decoder is to be deleted, but SunModels still use it.",
}

# What ``Ready`` is made of, in the order in which the first failure is reported.
DECODER_ROLL_UP: Final = (
    ConditionType.ACCEPTED,
    ConditionType.WEIGHTS_READY,
    ConditionType.KV_CONTRACT_KNOWN,
    ConditionType.AVAILABLE,
    ConditionType.ROUTER_SYNCED,
)
PROFILE_ROLL_UP: Final = (ConditionType.ACCEPTED,)
MODEL_ROLL_UP: Final = (
    ConditionType.ACCEPTED,
    ConditionType.RESOLVED_REFS,
    ConditionType.WEIGHTS_READY,
    ConditionType.KV_COMPATIBLE,
    ConditionType.DECODER_READY,
    ConditionType.PREFILL_READY,
    ConditionType.VERIFIED,
    ConditionType.ROUTER_SYNCED,
)


# Without ADAPTERS_LOADED: one task's broken adapter is no fault of the pool, and that task says so itself.
POOL_ROLL_UP: Final = (
    ConditionType.ACCEPTED,
    ConditionType.RESOLVED_REFS,
    ConditionType.WEIGHTS_READY,
    ConditionType.KV_COMPATIBLE,
    ConditionType.DECODER_READY,
    ConditionType.PREFILL_READY,
)


class Reason(StrEnum):
    """Reasons that people and alerts may match on; a resolver adds its own CamelCase words for weights."""

    READY = "Ready"
    SCALED_TO_ZERO = "ScaledToZero"
    PENDING = "Pending"
    PAUSED = "Paused"
    # Accepted, ResolvedRefs
    ACCEPTED = "Accepted"
    INVALID_SPEC = "InvalidSpec"
    MODEL_NAME_CONFLICT = "ModelNameConflict"
    RESOLVED = "Resolved"
    DECODER_NOT_FOUND = "DecoderNotFound"
    DECODER_DELETING = "DecoderDeleting"
    NOT_ALLOWED_BY_DECODER = "NotAllowedByDecoder"
    VOLUME_CLAIM_NOT_FOUND = "VolumeClaimNotFound"
    PROFILE_NOT_FOUND = "ProfileNotFound"
    POOL_NOT_FOUND = "PoolNotFound"
    NOT_ALLOWED_BY_POOL = "NotAllowedByPool"
    POOL_OF_OTHER_DECODER = "PoolOfOtherDecoder"
    # WeightsReady
    RESOLVING = "Resolving"
    RESOLVE_FAILED = "ResolveFailed"
    FLOATING_REVISION = "FloatingRevision"
    VOLUME_NOT_FOUND = "VolumeNotFound"
    DOWNLOADING = "Downloading"
    QUANTIZING = "Quantizing"
    # KVContractKnown, KVCompatible
    KV_CONTRACT_KNOWN = "KVContractKnown"
    KV_CONTRACT_UNKNOWN = "KVContractUnknown"
    KV_COMPATIBLE = "KVCompatible"
    KV_MISMATCH = "KVMismatch"
    TEMPLATE_CHANGES_CONTRACT = "TemplateChangesContract"
    ADAPTER_NOT_SUPPORTED = "AdapterNotSupported"
    TUNED_AGAINST_OTHER_DECODER = "TunedAgainstOtherDecoder"
    # Verified
    VERIFIED = "Verified"
    VERIFYING = "Verifying"
    GOLDEN_PROMPT_MISMATCH = "GoldenPromptMismatch"
    GOLDEN_PROMPTS_NOT_FOUND = "GoldenPromptsNotFound"
    VERIFICATION_FAILED = "VerificationFailed"
    # RouterSynced
    ROUTES_TAKEN = "RoutesTaken"
    ROUTES_PENDING = "RoutesPending"
    ROUTERS_BEHIND = "RoutersBehind"
    ROUTER_UNREACHABLE = "RouterUnreachable"
    NO_ROUTER = "NoRouter"
    # Available, DecoderReady, PrefillReady, Progressing
    MINIMUM_REPLICAS_AVAILABLE = "MinimumReplicasAvailable"
    MINIMUM_REPLICAS_UNAVAILABLE = "MinimumReplicasUnavailable"
    DECODER_NOT_READY = "DecoderNotReady"
    ROLLING_OUT = "RollingOut"
    CHILD_REFUSED = "ChildRefused"
    ROLLOUT_COMPLETE = "RolloutComplete"
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    CRASH_LOOP = "CrashLoop"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    UNSCHEDULABLE = "Unschedulable"
    FAILED_CREATE = "FailedCreate"
    EVICTED = "Evicted"
    POD_NOT_READY = "PodNotReady"
    # Complete, Failed, Suspended, Progressing of a PrefillTuning; a pod's report adds its own CamelCase words
    STARTED = "Started"
    RUNNING = "Running"
    COMPLETED = "Completed"
    SUSPENDED = "Suspended"
    TUNING_FAILED = "TuningFailed"
    OUT_OF_MEMORY = "OutOfMemory"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
    INVALID_HYPERPARAMETERS = "InvalidHyperparameters"
    # AdaptersLoaded, PrefillReady of a task with a pool; a failed download adds its own words
    ADAPTERS_LOADED = "AdaptersLoaded"
    ADAPTER_LOADING = "AdapterLoading"
    ADAPTER_FAILED = "AdapterFailed"
    POOL_FULL = "PoolFull"
    # ScalingReady, BudgetExceeded
    DECIDED_FROM_METRICS = "DecidedFromMetrics"
    DRY_RUN = "DryRun"
    EXTERNAL = "External"
    REPLICAS_HELD = "ReplicasHeld"
    SECOND_SCALER = "SecondScaler"
    BUDGET_EXCEEDED = "BudgetExceeded"
    METRICS_MISSING = "MetricsMissing"
    METRICS_STALE = "MetricsStale"
    FALLBACK = "Fallback"
    SCALED = "Scaled"  # of an Event
    # Of Events about canaries
    CANARY_PROGRESSING = "CanaryProgressing"
    CANARY_PROMOTABLE = "CanaryPromotable"
    CANARY_ROLLED_BACK = "CanaryRolledBack"
    # Something to say
    WITHOUT_EFFECT = "WithoutEffect"
    IN_USE = "InUse"
    PROFILE_CHANGED = "ProfileChanged"


class Condition(ApiModel):
    """A Kubernetes condition."""

    type: str = Field(min_length=1, max_length=316)
    """What it speaks of."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: str = Field(min_length=1, max_length=1024)
    """One CamelCase word that programs may match on."""
    message: str = Field(default="", max_length=32768)
    """What, where, and how to mend it."""
    observed_generation: int | None = Field(default=None, ge=0)
    """Generation of the spec that this condition speaks of."""
    last_transition_time: str = Field(default="", max_length=64)
    """When status last changed, RFC 3339 in UTC with seconds."""


Conditions = Annotated[tuple[Condition, ...], Field(max_length=32), list_map("type")]
