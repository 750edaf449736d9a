"""The hand-over inside ``kv_transfer_params``, as the decode side reads it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sunfleet_api import wire

KEY_OUTPUT_LOGPROBS: Final = wire.KEY_OUTPUT_LOGPROBS
# JSON knows no infinity; the engine's server reports anything this low as -9999.
LOWEST_LOGPROB: Final = -1e30
# Set by the front end for the rest of its process, never taken from a request: hand every token over by itself.
KEY_STEPWISE: Final = "sun_stepwise"
# In a request that a prefill pod's front end makes itself: finished requests whose KV nobody will read.
KEY_RELEASE: Final = "sun_release"


@dataclass(frozen=True)
class SeedLogprobs:
    """Log-probabilities of the seed's positions: per position the sampled token first, then the alternatives."""

    token_ids: list[list[int]]
    logprobs: list[list[float]]
    ranks: list[int]

    def to_wire(self) -> dict[str, Any]:
        return {"token_ids": self.token_ids, "logprobs": self.logprobs, "ranks": self.ranks}


def is_handover(params: Mapping[str, Any] | None) -> bool:
    """Whether a request asks to continue from a prompt that another pod computed."""
    return bool(params and params.get("do_remote_prefill"))


def seed_of(params: Mapping[str, Any] | None) -> list[int]:
    """Tokens generated so far, at least one in a complete hand-over; empty when absent or malformed."""
    seed = (params or {}).get(wire.KEY_OUTPUT_TOKEN_IDS)
    if not isinstance(seed, list) or not all(type(token) is int and token >= 0 for token in seed):
        return []
    return seed


def told_of(params: Mapping[str, Any] | None) -> int | None:
    """How many output tokens a resumed stream has told already; ``None`` when the stream begins here."""
    told = (params or {}).get(wire.KEY_TOLD_TOKENS)
    return told if type(told) is int else None


def wants_progress(params: Mapping[str, Any] | None) -> bool:
    """Whether a stream shall say which tokens it has told."""
    return (params or {}).get(wire.KEY_PROGRESS) is True


def released_requests(params: Mapping[str, Any] | None) -> frozenset[str]:
    """Requests whose KV a prefill pod is told to free; empty in any other request."""
    return frozenset((params or {}).get(KEY_RELEASE) or ())


def missing_fields(params: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Names of what a decode pod needs and the request lacks; empty when the hand-over is complete."""
    missing = list(wire.missing_fields(params))
    if not is_handover(params):
        missing.insert(0, "do_remote_prefill")
    if not seed_of(params):
        missing.append(wire.KEY_OUTPUT_TOKEN_IDS)
    return tuple(missing)


def seed_logprobs(params: Mapping[str, Any] | None) -> SeedLogprobs | None:
    """The seed's log-probabilities; ``None`` unless there is one entry for each of its tokens."""
    given = (params or {}).get(KEY_OUTPUT_LOGPROBS)
    if not isinstance(given, Mapping):
        return None
    rows = SeedLogprobs(given.get("token_ids") or [], given.get("logprobs") or [], given.get("ranks") or [])
    length = len(seed_of(params))
    same_length = len(rows.token_ids) == len(rows.logprobs) == len(rows.ranks) == length
    return rows if same_length and length else None


def response_model(params: Mapping[str, Any] | None) -> str | None:
    """The name that the answer's ``model`` field shall carry."""
    name = (params or {}).get(wire.KEY_RESPONSE_MODEL)
    return name if isinstance(name, str) and name else None
