"""Digest types that stand in statuses of both kinds."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sunfleet_api.base import ApiModel

ShortText = Annotated[str, Field(max_length=1024)]


class KVFingerprint(ApiModel):
    """Identity of the KV format; two pods may exchange KV only if theirs are equal."""

    version: int = 0
    """Version of what the digest covers."""
    digest: str = Field(default="", max_length=128)
    """sha256 over checkpoint facts, tokenizer and engine contract."""

    @property
    def label(self) -> str:
        """Value of ``names.LABEL_KV_FINGERPRINT``: 32 hex digits, or empty when unknown."""
        return self.digest.removeprefix("sha256:")[:32]
