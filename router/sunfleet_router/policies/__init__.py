"""Who gets a request: pure functions of (facts of the request, what is known of the pods) -> choice, wait or reject."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from sunfleet_router.snapshot import Endpoint


@dataclass(frozen=True, slots=True)
class Choice:
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing has room now; something may later."""


@dataclass(frozen=True, slots=True)
class Reject:
    """Nothing can take it, now or when the present work is done: no pod at all, or every one was tried already."""

    reason: Literal["none", "tried"]


def tie_break(uid: str, request_id: str) -> int:
    """A number that spreads requests over equal pods; one request keeps its order of pods."""
    # Not a CRC: it is linear, so that one pod of four would get half of the requests.
    return int.from_bytes(blake2b(f"{uid}/{request_id}".encode(), digest_size=8).digest())
