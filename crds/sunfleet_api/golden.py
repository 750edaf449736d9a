"""Golden prompts: requests with the exact answers of the transformers reference, in a file beside the weights.

The tuner writes it; verification sends each prompt through both legs, greedily, and compares token by token.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

GOLDEN_FILE: Final = "golden.json"

TokenIds = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]


class GoldenPrompt(BaseModel):
    """One prompt and its answer, as token ids; an answer that ended holds its stop token."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    prompt_token_ids: TokenIds
    token_ids: TokenIds
    # The smallest distance, in logits, between a chosen token and the next best: what rounding may not exceed.
    margin: float = 0.0


class GoldenSet(BaseModel):
    """Contents of :data:`GOLDEN_FILE`."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    schema_version: int = 1
    decoder_digest: str = ""  # the decoder that continued the answers
    prompts: tuple[GoldenPrompt, ...] = ()
