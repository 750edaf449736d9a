"""PrefillTuning: one run of prefill-only tuning as a Job. Its result is an artifact, never an edit of a SunModel."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from sunfleet_api.base import ApiModel, Kind, Resource
from sunfleet_api.conditions import Conditions
from sunfleet_api.digests import KVFingerprint, ShortText
from sunfleet_api.markers import ATOMIC, SERVER_DEFAULTED, Cel
from sunfleet_api.naming import NAME_RULES
from sunfleet_api.refs import NameRef, ObjectRef
from sunfleet_api.template import PodTemplate
from sunfleet_api.weights import DataUri, OutputUri, Subset, WeightsSource

PREFILL_TUNING: Final = Kind("PrefillTuning", "prefilltunings", "prefilltuning", ("ptune",), scales=False)

# What may follow the start of a run is suspend and ttlSecondsAfterFinished, as with a Job.
_FIXED: Final = ("decoderRef", "initFrom", "method", "dataset", "validation", "hyperparameters", "output", "nodes")
_DECIMAL: Final = r"^[0-9]{1,9}(\.[0-9]{1,12})?([eE]-?[0-9]{1,2})?$"
DataFormat = Literal["Auto", "Chat", "Text"]


def _fixed(field: str) -> Cel:
    return Cel(
        f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})",
        f"{field} is immutable, for the run has begun: make another PrefillTuning instead",
        f".{field}",
    )


class Lora(ApiModel):
    """A peft LoRA adapter."""

    rank: int = Field(default=16, ge=1, le=512)
    """Rank of the update."""
    alpha: int = Field(default=32, ge=1, le=4096)
    """The update is scaled by alpha / rank."""
    target_modules: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=253)], ...], Field(max_length=64), ATOMIC
    ] = ()
    """Linear layers by name, such as q_proj. Default: all of them."""


class Full(ApiModel):
    """All weights; embeddings and head stay the decoder's."""


class Method(ApiModel):
    """Exactly one of lora and full."""

    RULES: ClassVar = (Cel("has(self.lora) != has(self.full)", "set exactly one of lora and full"),)

    lora: Lora | None = None
    full: Full | None = None


class Dataset(ApiModel):
    """Rows to tune on."""

    uri: DataUri
    """hf://ORGANISATION/NAME@REVISION (a dataset), or a .jsonl file or saved dataset at pvc://, s3:// or gs://."""
    subset: Subset | None = None
    """Configuration of a Hugging Face dataset that has several: main of openai/gsm8k."""
    split: str = Field(default="train", min_length=1, max_length=128)
    """Split of a Hugging Face dataset."""
    format: DataFormat = "Auto"
    """Chat puts texts into the model's chat template; Text takes no template; Auto goes by the columns."""
    credentials_secret_ref: NameRef | None = None
    """Secret in the same namespace; docs/weights.md names its keys for each scheme."""


class Validation(ApiModel):
    """Rows that the run only measures itself by: another dataset, or a share of this one."""

    RULES: ClassVar = (
        Cel("!(has(self.uri) && has(self.percent))", "set one of uri and percent", ".percent"),
        Cel("!has(self.subset) || has(self.uri)", "a subset is one of uri's dataset: set uri, too", ".subset"),
    )

    uri: DataUri | None = None
    """Another dataset, opened with the dataset's credentials."""
    subset: Subset | None = None
    """Configuration of that dataset. Default: the dataset's, where both are the same one."""
    percent: int | None = Field(default=None, ge=0, le=50)
    """Share of the dataset. Default: 5, unless uri is set."""


class Hyperparameters(ApiModel):
    """The settings that matter first; extra holds any other."""

    learning_rate: str | None = Field(default=None, max_length=32, pattern=_DECIMAL)
    """Such as "1e-4". Default: 2e-4 for LoRA, 1e-5 for full weights."""
    epochs: int = Field(default=1, ge=1, le=1000)
    """Passes over the dataset."""
    max_steps: int = Field(default=0, ge=0, le=10_000_000)
    """Steps instead of epochs. Default: 0, epochs count."""
    batch_tokens: int = Field(default=65_536, ge=1, le=100_000_000)
    """Tokens of a step, over all processes."""
    seed: int = Field(default=0, ge=0, le=2_147_483_647)
    """Of data order, validation split and the adapter's start. Default: 0."""
    precision: Literal["bf16", "fp32"] = "bf16"
    """Of the arithmetic; CPUs want fp32."""
    extra: Annotated[dict[str, Annotated[str, Field(max_length=1024)]], Field(max_length=32)] = Field(
        default_factory=dict
    )
    """Any other setting of `sunfleet tune`, in its spelling: warmup_percent: "5"."""


class Output(ApiModel):
    """Where the module goes, and the run's checkpoints meanwhile (beside it, in PATH.work)."""

    uri: OutputUri
    """pvc://CLAIM/PATH, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX."""
    credentials_secret_ref: NameRef | None = None
    """Secret in the same namespace that may write there."""


class PrefillTuningSpec(ApiModel):
    RULES: ClassVar = (
        *(_fixed(field) for field in _FIXED),
        Cel(
            "!has(self.nodes) || self.nodes == 1 || self.output.uri.startsWith('pvc://')",
            "several nodes go on from checkpoints that all of them can read: write to a ReadWriteMany claim (pvc://)",
            ".output",
        ),
    )

    decoder_ref: ObjectRef
    """The SharedDecoder to tune against; in another namespace only if its allowedModels says so."""
    init_from: WeightsSource | None = None
    """16-bit weights that the module starts from. Default: the decoder's checkpoint before any quantisation."""
    method: Method
    dataset: Dataset
    validation: Validation | None = None
    hyperparameters: Hyperparameters = Field(default_factory=Hyperparameters)
    output: Output
    nodes: Annotated[int, Field(ge=1, le=64), SERVER_DEFAULTED] = 1
    """Pods that work on the run together; more than one want an output on a claim that is ReadWriteMany."""
    suspend: bool = False
    """Stop the pods; the run goes on from its last checkpoint when this is taken back."""
    backoff_limit: Annotated[int, Field(ge=0, le=100), SERVER_DEFAULTED] = 3
    """Pods that may fail before the run does. Pods that a node took away (drain, preemption) do not count."""
    active_deadline_seconds: int | None = Field(default=None, ge=1, le=31_536_000)
    """The run fails after so long."""
    ttl_seconds_after_finished: int | None = Field(default=None, ge=0, le=31_536_000)
    """The Job and its pods go so long after the end; this object stays."""
    template: PodTemplate = Field(default_factory=PodTemplate)
    """Overlay over the pods, whose container is named "tuner"; read when the Job is made."""


class TuningProgress(ApiModel):
    """How far the run is; written at most every 30 seconds."""

    step: int = 0
    """Steps done."""
    total_steps: int = 0
    """Steps of the whole run."""
    loss: str = Field(default="", max_length=32)
    """Cross-entropy per response token, in nats, of the last step."""
    tokens_per_second: int = 0
    """Of prompts and responses, over all pods."""
    update_time: str = Field(default="", max_length=64)
    """When the run said so."""


class TuningArtifact(ApiModel):
    """What the run made. A SunModel names it: prefill.adapter.uri or prefill.weights.uri."""

    uri: ShortText = ""
    """Where it lies."""
    digest: str = Field(default="", max_length=128)
    """sha256 over its files."""
    decoder_digest: str = Field(default="", max_length=128)
    """The decoder it was tuned against."""
    kv_fingerprint: KVFingerprint = Field(default_factory=KVFingerprint)
    """The part that the checkpoint decides."""
    golden_prompts_uri: ShortText = ""
    """The folder of its golden.json, for verification.goldenPrompts.uri."""
    metrics: Annotated[dict[str, Annotated[str, Field(max_length=32)]], Field(max_length=32)] = Field(
        default_factory=dict
    )
    """Steps, validation loss before and after, seconds."""


class PrefillTuningStatus(ApiModel):
    observed_generation: int = 0
    """Generation of the spec that this status speaks of."""
    conditions: Conditions = ()
    """What holds and what does not, by type."""
    start_time: str = Field(default="", max_length=64)
    """When the Job was started."""
    completion_time: str = Field(default="", max_length=64)
    """When the run ended well."""
    active: int = 0
    """Pods at work."""
    failed: int = 0
    """Pods that failed."""
    progress: TuningProgress | None = None
    artifact: TuningArtifact | None = None


class PrefillTuning(Resource):
    """One run of prefill-only tuning: a decoder and a dataset in, a prefill module out."""

    KIND: ClassVar = PREFILL_TUNING
    RULES: ClassVar = NAME_RULES

    spec: PrefillTuningSpec
    """What is wanted."""
    status: PrefillTuningStatus = Field(default_factory=PrefillTuningStatus)
    """What was observed."""
