"""What the fake engine does, and what it does wrong: set at start by the environment, later by ``PUT /fake/config``."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

Phase = Literal["none", "accept", "prefill", "kv_load", "first_token", "stream", "release", "progress"]
Death = Literal["exit", "reset", "truncate"]
Framing = Literal["clean", "split", "merged", "crlf", "garbage", "no_done"]


class Faults(BaseModel):
    """Ways to go wrong. All together they may be limited to the next ``requests`` generation requests."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    hang: Phase = "none"  # never leaves this phase (until the client goes)
    hang_after_tokens: int = 0  # with hang="stream": tokens sent before, by this request
    die_after_tokens: int | None = None  # sent by this request; 0: before the first byte
    die_after_opening: bool = False  # streams: what comes before the first token still gets out
    die_after_finish: bool = False  # streams: the last token still gets out, what follows does not
    die_after_done: bool = False  # streams: everything gets out but the end of the body
    die: Death = "exit"  # the process, the connection with a RST, or a clean end of the body without its last part
    framing: Framing = "clean"  # how streamed events are cut into writes, or spoilt
    garbage_json: bool = False  # 200 with a body that is no JSON
    drop_transfer_fields: tuple[str, ...] = ()  # of kv_transfer_params in a prefill answer
    drop_answer_fields: tuple[str, ...] = ()  # of the answer (top level and choices)
    tell_other_prompt: bool = False  # a prefill answer names other prompt ids than were computed
    fail_status: int = 0  # answer at once with this status
    fail_module: str = ""  # and only those that name this adapter of a pool
    fail_code: str = "sun_fault"
    fail_message: str = "a fault was asked for"
    fail_after_tokens: int | None = None  # sent by this request, then an error event with fail_code
    recompute_prompt: bool = False  # the decoder computes the prompt itself, as a stock engine would
    repeat_token_at: int | None = None  # sends the token at this position twice
    resumed_only: bool = False  # of a prefill pod: only legs of streams that go on
    requests: int | None = Field(default=None, ge=1)


class Behaviour(Faults):
    """Faults beside the ordinary properties of this engine: speed, room, length of answers, probes."""

    answer_tokens: int = Field(default=16, ge=1)  # length of an answer incl. EOS when max_tokens does not cut it
    reasoning_tokens: int = Field(default=0, ge=0)  # of a chat's answer: its first ones are reasoning, not content
    calls_tools: bool = False  # what is no reasoning is a call of the first tool, if a chat offers any
    stop_reason: str | None = None  # named when an answer ends by itself
    tokens_per_second: float = Field(default=0.0, ge=0)  # per request; 0: as fast as it goes
    accept_seconds: float = 0.0
    prefill_seconds: float = 0.0
    prefill_seconds_per_token: float = Field(default=0.0, ge=0)  # besides
    kv_load_seconds: float = 0.0
    first_token_seconds: float = 0.0  # of a decode pod: until its own, after the one that it was handed
    models_seconds: float = 0.0
    kv_blocks: int = Field(default=1024, ge=1)
    kv_lease_seconds: float = 30.0
    max_num_seqs: int = Field(default=256, ge=1)
    ready: bool = True
    healthy: bool = True

    def healed(self) -> Behaviour:
        """The same engine without its faults."""
        return self.model_copy(update={name: field.default for name, field in Faults.model_fields.items()})


class FakeSettings(BaseSettings):
    """What the fake reads beside the worker's own settings."""

    model_config = SettingsConfigDict(env_prefix="SUNFLEET_FAKE_", frozen=True)
    behaviour: Behaviour = Behaviour()  # JSON
    identity: str = ""  # of the module; default: from the weights
    start_seconds: float = 0.0  # before it listens at all
    host: str = "0.0.0.0"
