"""Golden prompts that a revision must answer exactly before it gets traffic."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from sunfleet_api.base import ApiModel
from sunfleet_api.digests import ShortText
from sunfleet_api.markers import Cel
from sunfleet_api.refs import NameRef
from sunfleet_api.scaling import Percent
from sunfleet_api.weights import Uri


class GoldenPrompts(ApiModel):
    RULES: ClassVar = (Cel("has(self.uri) != has(self.configMapRef)", "set exactly one of uri and configMapRef"),)

    uri: Uri | None = None
    config_map_ref: NameRef | None = None


class Verification(ApiModel):
    """What to compare, and what a difference means."""

    golden_prompts: GoldenPrompts | None = None
    """Default: those beside the weights."""
    policy: Literal["Enforce", "Warn", "Off"] = "Enforce"
    min_match_percent: Percent = 100
    sample_per_million: int = Field(default=0, ge=0, le=1_000_000)
    """Share of live requests that are checked again."""
    decoder_mismatch: Literal["Refuse", "Warn"] = "Refuse"
    """A module that was tuned against another decoder: refuse it, or serve it with a condition."""


class VerificationStatus(ApiModel):
    revision: str = Field(default="", max_length=63)
    passed: int = 0
    total: int = 0
    first_mismatch: ShortText = ""
    time: str = Field(default="", max_length=64)
