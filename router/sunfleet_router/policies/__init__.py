"""Who gets a request: pure functions of (facts of the request, what is known of the pods) -> choice, wait or reject.

Must not do I/O, read a clock, or remember a request: books are kept by ``admission``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from operator import itemgetter
from types import MappingProxyType
from typing import Final, Literal
from zlib import crc32

from sunfleet_router.fleet.snapshot import Endpoint


@dataclass(slots=True)  # not frozen, see Ask
class Choice:
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing has room now; something may later."""


@dataclass(frozen=True, slots=True)
class Reject:
    """Nothing can take it, now or when the present work is done: no pod at all, every one was tried already, or all
    others are ejected; ``seconds`` until one of those may be tried.
    """

    reason: Literal["none", "tried", "ejected"]
    seconds: float = 0.0


_MASK: Final = (1 << 64) - 1
FIRST_TWO: Final = itemgetter(0, 1)  # of (rank, uid, ..., pod): pods themselves have no order
NOBODY: Final[Mapping[str, float]] = MappingProxyType({})


def standing(pods: Sequence[Endpoint], ejected: Mapping[str, float]) -> Sequence[Endpoint] | Reject:
    """Those of at least one pod that may be asked: who is not ejected; if all are, who may be tried again.

    ``ejected``: see :meth:`sunfleet_router.policies.outlier.Outliers.ejected`.
    """
    if not ejected:
        return pods
    well = [pod for pod in pods if pod.uid not in ejected]
    if well:
        return well
    due = [pod for pod in pods if ejected[pod.uid] <= 0]
    return due or Reject("ejected", min(ejected[pod.uid] for pod in pods))


def tie_break(uid: str, request_id: str) -> int:
    """A number that spreads requests over equal pods; one request keeps its order of pods."""
    # Not the CRC of both: it is linear, so that one pod of four would get half of the requests.
    return rank(uid, crc32(request_id.encode()))


def rank(uid: str, number: int) -> int:
    """Of a pod for whatever has this number, spread evenly: less is better. The same in every process."""
    return number * _factor(uid) & _MASK


@lru_cache(maxsize=4096)
def _factor(uid: str) -> int:
    """An odd number of the pod's own."""
    return int.from_bytes(blake2b(uid.encode(), digest_size=8).digest()) | 1
