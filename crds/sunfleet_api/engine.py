"""``spec.engine`` of a SharedDecoder: what its pool and every attached prefill must have in common."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from sunfleet_api.base import ApiModel
from sunfleet_api.markers import IMMUTABLE, Keywords, list_map

# Engine arguments that a user may set: they tune speed or memory, or choose a parser. Everything else is ours, since
# the wrong value would break the KV contract, the hand-over or the isolation between tasks.
# ``attention-backend`` alone decides about KV too, so it is part of the fingerprint.
ATTENTION_BACKEND: Final = "attention-backend"
ALLOWED_EXTRA_ARGS: Final = (
    ATTENTION_BACKEND,
    "chat-template",
    "chat-template-content-format",
    "compilation-config",
    "cpu-offload-gb",
    "disable-custom-all-reduce",
    "enable-auto-tool-choice",
    "enable-chunked-prefill",
    "enforce-eager",
    "gpu-memory-utilization",
    "kv-cache-memory-bytes",
    "long-prefill-token-threshold",
    "max-logprobs",
    "max-num-batched-tokens",
    "max-num-seqs",
    "max-parallel-loading-workers",
    "num-gpu-blocks-override",
    "optimization-level",
    "reasoning-parser",
    "safetensors-load-strategy",
    "seed",
    "structured-outputs-config",
    "tokenizer-mode",
    "tool-call-parser",
    "uvicorn-log-level",
)
DEFAULT_MAX_MODEL_LEN: Final = 8192


def _allowed(name: str) -> str:
    if name not in ALLOWED_EXTRA_ARGS:
        raise ValueError(f"engine argument {name!r} may not be set; allowed are {', '.join(ALLOWED_EXTRA_ARGS)}")
    return name


class ExtraArg(BaseModel):
    """One engine argument from ``spec.engine.extraArgs``; ``value`` is empty for a flag."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)
    name: Annotated[str, AfterValidator(_allowed), Keywords({"enum": list(ALLOWED_EXTRA_ARGS)})]
    """Name of the engine's argument without its dashes."""
    value: str = Field(default="", max_length=1024)
    """Empty for a flag."""


Dtype = Literal["bfloat16", "float16", "float32"]
KVCacheDtype = Literal["auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2"]


class EngineSpec(ApiModel):
    """The engine of a decode pool and of every prefill attached to it: the KV contract and how pods run."""

    image: str | None = Field(default=None, min_length=1, max_length=512)
    """Worker image. Default: the operator's, or the one that live pods already have."""
    dtype: Annotated[Dtype, IMMUTABLE] = "bfloat16"
    """Compute type of both modules. Immutable."""
    kv_cache_dtype: Annotated[KVCacheDtype, IMMUTABLE] = "auto"
    """Type of cached keys and values; auto is dtype. Immutable."""
    block_size: Annotated[int, IMMUTABLE] = Field(default=16, ge=8, le=512, multiple_of=8)
    """Tokens per KV block; multiples of 32 on a CPU. Immutable."""
    max_model_len: int | None = Field(default=None, ge=1, le=16_777_216)
    """Longest prompt plus answer in tokens. Default: 8192, or what the checkpoint allows if that is less."""
    tensor_parallel_size: int = Field(default=1, ge=1, le=64)
    """GPUs per pod."""
    extra_args: Annotated[tuple[ExtraArg, ...], Field(max_length=32), list_map("name")] = ()
    """Further engine arguments, from a fixed list."""

    def context_length(self, checkpoint_limit: int | None) -> int:
        """``maxModelLen`` in effect, in tokens; ``checkpoint_limit`` is ``max_position_embeddings`` where known."""
        if self.max_model_len is not None:
            return self.max_model_len
        return min(DEFAULT_MAX_MODEL_LEN, checkpoint_limit or DEFAULT_MAX_MODEL_LEN)
