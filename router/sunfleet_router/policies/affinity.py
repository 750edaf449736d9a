"""Requests that begin alike go to the same prefill pod, whose prefix cache then has their common part already. Pure.

Rendezvous hashing: each pod has a rank for each beginning, and a pod that comes or goes moves only its own. With
bounded load (Mirrokni et al., 2018): a pod that has more than its share of the prompt tokens in flight passes a
request on to the next in rank, so that one popular beginning cannot hold up a pod while others idle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final

from sunfleet_router.fleet.snapshot import Endpoint
from sunfleet_router.policies import FIRST_TWO, rank

FACTOR: Final = 1.25  # times the average of tokens in flight
SLACK: Final = 8192  # tokens in flight that are never too many: about one prefill batch


def choose(alike: str, tokens: int, pods: Sequence[Endpoint], in_flight: Mapping[str, int]) -> Endpoint:
    """The pod of highest rank that has not got more than its share, this prompt included."""
    number = int.from_bytes(blake2b(alike.encode(errors="surrogatepass"), digest_size=8).digest())
    ranked = [(rank(pod.uid, number), pod.uid, pod) for pod in pods]
    first = min(ranked, key=FIRST_TWO)
    if in_flight.get(first[1], 0) + tokens <= SLACK:  # as mostly: that is never too many
        return first[2]
    ranked.sort(key=FIRST_TWO)
    total = tokens
    for pod in pods:
        total += in_flight.get(pod.uid, 0)
    most = max(SLACK, FACTOR * total / len(pods))
    for _, uid, pod in ranked:
        if in_flight.get(uid, 0) + tokens <= most:
            return pod
    return min(ranked, key=lambda one: in_flight.get(one[1], 0))[2]
