"""What engines cost, as data: a few figures per hardware and model, from a file or built in."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Costs(BaseModel):
    """Seconds and tokens of one pod. ``source`` says where the figures come from."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    source: str
    # A prompt of n tokens is prefilled in prefill_seconds + n / prefill_tokens_per_second, one after the other.
    prefill_tokens_per_second: float = Field(gt=0)
    prefill_seconds: float = Field(default=0.0, ge=0)
    # KV from one pod to the other.
    transfer_seconds: float = Field(default=0.0, ge=0)
    # Time per output token of a pod that decodes b streams: decode_seconds + b * decode_stream_seconds.
    decode_seconds: float = Field(gt=0)
    decode_stream_seconds: float = Field(default=0.0, ge=0)
    kv_tokens: int = Field(gt=0)
    # From the decision to Ready.
    prefill_startup_seconds: float = Field(default=60.0, ge=0)
    decode_startup_seconds: float = Field(default=60.0, ge=0)
    gpus_per_pod: int = Field(default=1, ge=1)

    def prefill(self, prompt: int) -> float:
        return self.prefill_seconds + prompt / self.prefill_tokens_per_second

    def per_token(self, streams: int) -> float:
        return self.decode_seconds + streams * self.decode_stream_seconds


# Round figures of the size that an 8B model in bfloat16 has on one 80 GB GPU: to compare policies, not to buy hardware.
DEFAULT = Costs(
    source="assumed: round figures of an 8B model in bfloat16 on one 80 GB GPU; give --costs with measured ones",
    prefill_tokens_per_second=16_000,
    prefill_seconds=0.02,
    transfer_seconds=0.02,
    decode_seconds=0.012,
    decode_stream_seconds=0.0001,
    kv_tokens=400_000,
    prefill_startup_seconds=60,
    decode_startup_seconds=60,
)
