"""What the operator tells a tuner or quantiser pod, and what the pod tells back: in its log, and when it ends."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from sunfleet_api.digests import KVFingerprint
from sunfleet_api.prefill_tuning import TuningProgress

# The Job as JSON, in the tuner container's environment.
JOB_VARIABLE: Final = "SUNFLEET_TUNER_JOB"
# Credentials of two places stand in one environment: each under its own prefix.
DATA_PREFIX: Final = "SUNFLEET_DATA_"
OUTPUT_PREFIX: Final = "SUNFLEET_OUTPUT_"
# Exit code of a failure that another attempt would only repeat: the Job ends with it at once.
EXIT_HOPELESS: Final = 3
# A line of the log that begins so tells how far the run is.
PROGRESS_MARK: Final = "sunfleet-progress "
# Where the main process of a run with several pods listens.
RENDEZVOUS_PORT: Final = 29500


class _Words(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class TuneJob(_Words):
    """One run. Paths are those in the pod; ``settings`` are keys of ``TuneConfig`` as text."""

    kind: Literal["tune"] = "tune"
    data: str  # URI
    data_path: str = ""  # where a claim's data is mounted
    validation: str = ""
    validation_path: str = ""
    output: str  # URI
    output_path: str  # folder of the module in the pod
    processes: int = Field(default=1, ge=1)  # of each pod
    nodes: int = Field(default=1, ge=1)
    sharded: bool = False  # FSDP2: every process holds a part of the weights
    main_address: str = ""  # of the first pod, where there are several
    settings: dict[str, str] = Field(default_factory=dict)


class QuantizeJob(_Words):
    """A checkpoint in the pod -> a weight-only quantised one."""

    kind: Literal["quantize"] = "quantize"
    base_path: str
    output: str  # URI
    output_path: str
    bits: int = 4
    group_size: int = 128
    data: str = ""  # URI of calibration texts; without them weights are rounded to nearest
    data_path: str = ""
    subset: str = ""  # of a Hugging Face dataset
    samples: int = 512


AnyJob = Annotated[TuneJob | QuantizeJob, Field(discriminator="kind")]


class TuningReport(_Words):
    """The termination message (JSON, at most 4 KiB): the artifact, or why there is none."""

    digest: str = ""  # of the module's files
    decoder_digest: str = ""
    kv_fingerprint: KVFingerprint = Field(default_factory=KVFingerprint)
    golden: bool = False  # golden prompts lie beside it
    metrics: dict[str, str] = Field(default_factory=dict)
    error_reason: str = ""  # CamelCase, becomes the condition's reason
    error_message: str = ""


def progress_of(log: str) -> TuningProgress | None:
    """The last progress that a log tells of."""
    for line in reversed(log.splitlines()):
        _, mark, told = line.partition(PROGRESS_MARK)
        if mark:
            try:
                return TuningProgress.model_validate_json(told)
            except ValueError:  # cut off by the tail, or somebody else's words
                continue
    return None
