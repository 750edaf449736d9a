"""Decode pods by reserved KV over the whole pool, never by task."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sunfleet_router.policies import Choice, Reject, Wait, tie_break
from sunfleet_router.snapshot import Endpoint


@dataclass(frozen=True, slots=True)
class DecodeFacts:
    """``tokens``: KV that the request may fill, prompt and output. ``fingerprints``: KV that its prefill pods make."""

    request_id: str
    tokens: int
    fingerprints: Collection[str]
    tried: Collection[str] = ()  # pods (uid) that failed this request


def choose(
    facts: DecodeFacts, pool: Sequence[Endpoint], reserved: Mapping[str, int], suspects: Collection[str] = ()
) -> Choice | Wait | Reject:
    """The pod that is emptiest relative to its size once this request is on it.

    A request larger than a whole pod may have an empty one: the engine limits the length, not we. Pods in ``suspects``
    were unreachable a moment ago and come last.
    """
    able = [pod for pod in pool if pod.capacity > 0 and pod.fingerprint in facts.fingerprints]
    if not able:
        return Reject("none")
    untried = [pod for pod in able if pod.uid not in facts.tried]
    if not untried:
        return Reject("tried")
    roomy = [pod for pod in untried if _fits(facts.tokens, pod, reserved)]
    if not roomy:
        return Wait()

    def order(pod: Endpoint) -> tuple[bool, float, int, str]:
        filled = (reserved.get(pod.uid, 0) + facts.tokens) / pod.capacity
        return pod.uid in suspects, filled, tie_break(pod.uid, facts.request_id), pod.uid

    return Choice(min(roomy, key=order))


def _fits(tokens: int, pod: Endpoint, reserved: Mapping[str, int]) -> bool:
    used = reserved.get(pod.uid, 0)
    return used + min(tokens, pod.capacity) <= pod.capacity
