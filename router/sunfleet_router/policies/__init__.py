"""Who gets a request: pure functions of (facts of the request, what is known of the pods) -> choice, wait or reject."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from zlib import crc32

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
    return crc32(f"{uid}/{request_id}".encode())
