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
    """Where they lie."""
    config_map_ref: NameRef | None = None
    """ConfigMap that holds them."""


class Verification(ApiModel):
    """What to compare, and what a difference means."""

    golden_prompts: GoldenPrompts | None = None
    """Prompts with their exact answers. Default: those beside the weights."""
    policy: Literal["Enforce", "Warn", "Off"] = "Enforce"
    """Enforce: no traffic on a mismatch. Warn: traffic and a condition. "Off", in quotes for YAML: no check."""
    min_match_percent: Percent = 100
    """Prompts that must be answered exactly."""
    sample_per_million: int = Field(default=0, ge=0, le=1_000_000)
    """Of a million greedy answers, how many routers make again in the background, on other pods, to compare them."""
    decoder_mismatch: Literal["Refuse", "Warn"] = "Refuse"
    """A module that was tuned against another decoder: refuse it, or serve it with a condition."""


class VerificationStatus(ApiModel):
    revision: str = Field(default="", max_length=63)
    """Revision that was checked."""
    passed: int = 0
    """Prompts answered exactly."""
    total: int = 0
    """Prompts tried."""
    first_mismatch: ShortText = ""
    """First prompt whose answer differed, and where."""
    time: str = Field(default="", max_length=64)
    """When, RFC 3339."""
