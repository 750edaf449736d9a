"""The flat configuration of a tuning run: one list of fields, each a key of the YAML file and a flag of the command."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

# Small models bear far more (docs/tuning.md has what was measured); these are safe for billions of parameters.
LEARNING_RATES: Final = {"lora": 2e-4, "full": 1e-5}
# Fields that change nothing about the result: another value may continue a run.
HARMLESS: Final = frozenset(
    {"output", "work", "save_steps", "trackers", "golden_prompts", "name", "task", "progress", "sharded"}
)


class TuneConfig(BaseModel):
    """Everything a run depends on, apart from the files it names. Recorded in the artifact as it is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # What is tuned
    decoder: str = Field(description="the frozen decoder, plain or quantised: a folder, or a model name on the hub")
    init: str = Field(default="", description="16-bit weights the prefill module starts from (default: the decoder's)")
    output: Path = Field(description="folder to write the prefill module to")
    method: Literal["lora", "full"] = Field(default="lora", description="an adapter, or full weights")
    rank: int = Field(default=16, ge=1, description="of the LoRA")
    alpha: int = Field(default=32, ge=1, description="of the LoRA")
    targets: str = Field(default="all-linear", description="linear layers with a LoRA, separated by commas")
    train_embeddings: bool = Field(default=False, description="full weights: train embeddings and head, too")

    # Data
    data: str = Field(description="a .jsonl or .parquet file, or a dataset of Hugging Face: a name, or a folder")
    subset: str = Field(default="", description="configuration of a Hugging Face dataset that has several")
    split: str = Field(default="train", description="of a Hugging Face dataset")
    format: Literal["auto", "chat", "text"] = Field(default="auto", description="chat puts text into the template")
    validation: str = Field(default="", description="another dataset to validate on (split `validation`, or `test`)")
    validation_subset: str = Field(default="", description="of `validation` (default: the data's, of one dataset)")
    validation_percent: float = Field(default=5.0, ge=0, le=50, description="of the data, without `validation`")
    max_length: int = Field(default=2048, ge=2, description="tokens; longer rows are left out")

    # Optimisation
    epochs: int = Field(default=1, ge=1, description="passes over the data")
    max_steps: int = Field(default=0, ge=0, description="steps instead of epochs")
    batch_rows: int = Field(default=16, ge=1, description="rows in a step, over all processes")
    batch_tokens: int = Field(default=0, ge=0, description="tokens in a step instead of rows")
    micro_tokens: int = Field(default=8192, ge=1, description="padded tokens in a forward pass: bounds memory")
    learning_rate: float = Field(default=0.0, ge=0, description="0: 2e-4 for LoRA, 1e-5 for full weights")
    schedule: Literal["cosine", "linear", "constant_with_warmup"] = Field(default="cosine", description="after warm-up")
    warmup_percent: float = Field(default=3.0, ge=0, le=100, description="of the steps")
    weight_decay: float = Field(default=0.0, ge=0, description="of AdamW")
    clip_norm: float = Field(default=1.0, gt=0, description="largest norm of the gradient")
    precision: Literal["bf16", "fp32"] = Field(default="bf16", description="of the arithmetic; CPUs want fp32")
    sharded: bool = Field(default=False, description="spread the weights over all processes (FSDP2)")
    gradient_checkpointing: bool = Field(default=False, description="less memory, a third more time")
    seed: int = Field(default=0, description="of data order, validation split and adapter")

    # Validation and checkpoints
    eval_steps: int = Field(default=0, ge=0, description="steps between validations (0: each epoch)")
    patience: int = Field(default=0, ge=0, description="stop after so many validations without a better one (0: never)")
    save_steps: int = Field(default=0, ge=0, description="steps between checkpoints (0: at each validation)")
    work: Path | None = Field(default=None, description="folder of the run's checkpoints (default: OUTPUT.work)")

    # Reporting
    name: str = Field(default="", description="of the task (default: the output's name)")
    task: str = Field(default="", description="a sentence about it, for the model card")
    golden_prompts: int = Field(default=16, ge=0, description="prompts with reference answers in the artifact")
    trackers: tuple[Literal["tensorboard", "wandb"], ...] = Field(default=(), description="tensorboard, wandb")
    progress: Path | None = Field(default=None, description="file that says how far the run is, for a supervisor")

    @field_validator("trackers", mode="before")
    @classmethod
    def _separated_by_commas(cls, value: object) -> object:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _fits_together(self) -> TuneConfig:
        if self.train_embeddings and self.method == "lora":
            raise ValueError("train_embeddings needs method: full (an adapter with embeddings cannot be served)")
        if self.patience and not (self.validation or self.validation_percent):
            raise ValueError("patience needs validation data: set validation or validation_percent")
        return self

    @property
    def rate(self) -> float:
        return self.learning_rate or LEARNING_RATES[self.method]

    @property
    def lora_targets(self) -> str | list[str]:
        names = [name.strip() for name in self.targets.split(",")]
        return names[0] if len(names) == 1 and names[0] == "all-linear" else names

    @property
    def work_folder(self) -> Path:
        return self.work or self.output.with_name(f"{self.output.name}.work")

    @property
    def runs_folder(self) -> Path:
        """Where TensorBoard's events stay: beside the module, which tells nothing of the machine it was made on."""
        return self.output.with_name(f"{self.output.name}.runs")

    @property
    def title(self) -> str:
        return self.name or self.output.name

    @property
    def subset_of_validation(self) -> str:
        one_dataset = self.validation.partition("@")[0] == self.data.partition("@")[0]
        return self.validation_subset or (self.subset if one_dataset else "")

    def decisive(self) -> dict[str, object]:
        """The fields that decide the result, JSON-ready."""
        # Without them where they say nothing: runs that were begun before there were subsets go on.
        unsaid = {name for name in ("subset", "validation_subset") if not getattr(self, name)}
        return self.model_dump(mode="json", exclude={*HARMLESS, *unsaid})
