"""A second revision that gets a growing share of the requests."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sunfleet_api.base import ApiModel
from sunfleet_api.digests import KVFingerprint, ShortText
from sunfleet_api.markers import Cel, list_map
from sunfleet_api.prefill import Prefill
from sunfleet_api.refs import ObjectRef
from sunfleet_api.scaling import Percent, Seconds


class CanaryStep(ApiModel):
    weight: int = Field(ge=1, le=100)
    """Percent of new requests. Steps are taken in order of weight."""
    pause_seconds: Seconds = 0
    """How long to watch before the next step."""


class Analysis(ApiModel):
    """When a canary is given up."""

    min_requests: int = Field(default=200, ge=1, le=1_000_000)
    """Requests of the candidate that must have ended within a step before it is judged."""
    max_error_percent: Percent = 1
    """A greater share of requests that its engines failed rolls back."""
    max_latency_increase_percent: int = Field(default=10, ge=0, le=1000)
    """Seconds per output token above the present revision's by more than this roll back."""


class Canary(ApiModel):
    """The candidate; promotion is copying it up and deleting it here."""

    RULES: ClassVar = (Cel("has(self.prefill) || has(self.decoderRef)", "set prefill, decoderRef or both"),)

    prefill: Prefill | None = None
    """Another prefill module. Default: the present one."""
    decoder_ref: ObjectRef | None = None
    """Another decoder. Default: the present one."""
    steps: Annotated[tuple[CanaryStep, ...], Field(max_length=20), list_map("weight")] = ()
    """Shares of the requests, from the smallest. Without any the candidate is only verified."""
    analysis: Analysis = Field(default_factory=Analysis)
    paused: bool = False
    """Stay at the present step."""

    def acts_in(self, prefill: Prefill) -> bool:
        """Whether it does anything for a task of that prefill module: pods of a PrefillPool hold its adapter beside the
        task's, and are for one decoder."""
        here, brought = prefill.pool_ref, (self.prefill or prefill).pool_ref
        return here == brought and (here is None or self.decoder_ref is None)


CanaryPhase = Literal["Verifying", "Progressing", "Promotable", "RolledBack"]


class CanaryStatus(ApiModel):
    phase: CanaryPhase | None = None
    """Verifying: its pods start and answer golden prompts. Progressing: it takes a step. Promotable: it took them all.
    RolledBack: it gets no requests any more; change canary, or remove it and add it again, to try again."""
    revision: str = Field(default="", max_length=63)
    """Revision of the candidate."""
    step: int = 0
    """Index of the present step, from 0."""
    weight: int = 0
    """Percent of new requests that it gets."""
    started_at: str = Field(default="", max_length=64)
    """When the present step or phase began, RFC 3339."""
    kv_fingerprint: KVFingerprint = Field(default_factory=KVFingerprint)
    """Of the KV that its pods make."""
    reason: ShortText = ""
    """Why it stands as it does."""
