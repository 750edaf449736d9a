"""How a task's requests are admitted and timed, and what routers act on."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from sunfleet_api.base import ApiModel
from sunfleet_api.digests import ShortText
from sunfleet_api.markers import Cel

PhaseSeconds = Annotated[int, Field(ge=1, le=86_400)]
_DECIMAL = r"^(0|[1-9][0-9]{0,3})(\.[0-9]{1,6})?$"
Decimal = Annotated[str, Field(max_length=16, pattern=_DECIMAL)]
SignedDecimal = Annotated[str, Field(max_length=16, pattern=r"^-?(0|[1-9][0-9]{0,3})(\.[0-9]{1,6})?$")]


class Queue(ApiModel):
    """Requests that wait for room, at all router replicas together; beyond it clients get 429."""

    max_requests: int = Field(default=1000, ge=0, le=1_000_000)
    """How many may wait."""
    max_tokens: int | None = Field(default=None, ge=1, le=1_000_000_000)
    """Prompt and output tokens that may wait in all. Default: no bound of its own."""
    max_bytes: int | None = Field(default=None, ge=1, le=1_099_511_627_776)
    """Request bodies, in bytes, that may wait in all. Default: no bound of its own."""
    ttl_seconds: PhaseSeconds = 60
    """How long one may wait for room on a decode pod."""
    hold_seconds: int | None = Field(default=None, ge=0, le=86_400)
    """How long one may wait while no prefill pod is ready. Default: 300 if autoscaling.minReplicas is 0,
    or with a poolRef, else 0."""


class RateLimit(ApiModel):
    """What may come within a minute, to all router replicas together; beyond it clients get 429."""

    requests_per_minute: int | None = Field(default=None, ge=1, le=10_000_000)
    """Requests that may begin. Default: any number."""
    tokens_per_minute: int | None = Field(default=None, ge=1, le=10_000_000_000)
    """Prompt and output tokens. Default: any number."""


class Timeouts(ApiModel):
    """Per phase of a request; the first one that passes ends it with 504. How long it may wait is the queue's."""

    connect_seconds: PhaseSeconds = 2
    """Until an engine pod has taken a connection; another pod is tried then."""
    prefill_seconds: PhaseSeconds = 30
    """Until the prefill pod has answered."""
    kv_load_seconds: PhaseSeconds = 30
    """Until the decode pod has the prompt's KV, which is when the client gets the first token."""
    first_token_seconds: PhaseSeconds = 60
    """From then on, until the decode pod has made a token of its own."""
    inter_token_seconds: PhaseSeconds = 30
    """Between two tokens."""
    request_seconds: PhaseSeconds = 600
    """The whole request."""


class Traffic(ApiModel):
    """Limits of this task at the router."""

    weight: int = Field(default=1, ge=1, le=1000)
    """Share of the decode pool when it is short, relative to the other tasks."""
    max_in_flight: int = Field(default=64, ge=1, le=100_000)
    """Requests being served at once, by all router replicas together."""
    queue: Queue = Field(default_factory=Queue)
    rate_limit: RateLimit = Field(default_factory=RateLimit)
    timeouts: Timeouts = Field(default_factory=Timeouts)


class GenerationDefaults(ApiModel):
    """Values for requests that leave them out."""

    temperature: Decimal | None = None
    """As in the OpenAI API, such as "0.7"."""
    top_p: Decimal | None = None
    """As in the OpenAI API."""
    top_k: int | None = Field(default=None, ge=-1, le=1_000_000)
    """As in vLLM; -1 considers all tokens."""
    min_p: Decimal | None = None
    """As in vLLM."""
    presence_penalty: SignedDecimal | None = None
    """As in the OpenAI API."""
    frequency_penalty: SignedDecimal | None = None
    """As in the OpenAI API."""
    repetition_penalty: Decimal | None = None
    """As in vLLM."""
    max_tokens: int | None = Field(default=None, ge=1, le=16_777_216)
    """As in the OpenAI API."""

    def request_fields(self) -> dict[str, float | int]:
        """The fields of an OpenAI request body that are set here, under their request names (``max_tokens``)."""
        values = self.model_dump(by_alias=False, exclude_none=True)
        return {name: float(value) if isinstance(value, str) else value for name, value in values.items()}


class Generation(ApiModel):
    defaults: GenerationDefaults = Field(default_factory=GenerationDefaults)


class PrefillTarget(ApiModel):
    """Own pods by selector, or an adapter of a pool."""

    selector: ShortText = ""
    """Label selector of the prefill pods, in this namespace."""
    pool: str = Field(default="", max_length=320)
    """namespace/name of the PrefillPool."""
    adapter: str = Field(default="", max_length=128)
    """Name under which the pool has loaded the adapter."""


class TrafficTarget(ApiModel):
    """One revision that gets requests."""

    RULES: ClassVar = (Cel("self.decoder.matches('^[^/]+/[^/]+$')", "decoder is namespace/name", ".decoder"),)

    revision: str = Field(min_length=1, max_length=63)
    """Revision of the prefill module."""
    weight: int = Field(ge=0, le=100)
    """Percent of new requests."""
    decoder: str = Field(min_length=3, max_length=320)
    """namespace/name of the SharedDecoder."""
    prefill: PrefillTarget
    cache_salt: str = Field(min_length=1, max_length=128)
    """Keeps this revision's KV apart from every other's."""
