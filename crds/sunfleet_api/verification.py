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
    """The folder that holds golden.json; read with the credentials of the prefill module."""
    config_map_ref: NameRef | None = None
    """ConfigMap of this namespace with the key golden.json."""


class Verification(ApiModel):
    """What to compare, and what a difference means."""

    golden_prompts: GoldenPrompts | None = None
    """Prompts with their exact answers. Default: golden.json beside the weights."""
    policy: Literal["Enforce", "Warn", "Off"] = "Enforce"
    """Enforce: a revision gets no traffic before it has passed. Warn: traffic and a condition. "Off", in quotes for
    YAML: no check. The check is made where goldenPrompts, policy or minMatchPercent is set."""
    min_match_percent: Percent = 100
    """Prompts that must be answered exactly."""
    sample_per_million: int = Field(default=0, ge=0, le=1_000_000)
    """Of a million greedy answers, how many routers make again in the background, on other pods, to compare them."""
    decoder_mismatch: Literal["Refuse", "Warn"] = "Refuse"
    """A module that was tuned against another decoder: refuse it, or serve it with a condition."""

    @property
    def checks(self) -> bool:
        """Whether golden prompts are to be answered. The other fields act by themselves, so they do not ask for it."""
        asked = {"golden_prompts", "policy", "min_match_percent"} & self.model_fields_set
        return bool(asked) and self.policy != "Off"

    def enough(self, passed: int, total: int) -> bool:
        """Whether that many exact answers pass; none of none does not."""
        return total > 0 and passed * 100 >= self.min_match_percent * total


class VerificationStatus(ApiModel):
    revision: str = Field(default="", max_length=63)
    """Revision that was checked last."""
    decoder_revision: str = Field(default="", max_length=63)
    """Revision of the decode pods that it was checked with."""
    passed: int = 0
    """Prompts answered exactly."""
    total: int = 0
    """Prompts tried."""
    first_mismatch: ShortText = ""
    """First prompt whose answer differed, and where."""
    time: str = Field(default="", max_length=64)
    """When, RFC 3339."""
