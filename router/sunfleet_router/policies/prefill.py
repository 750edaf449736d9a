"""Prefill pods: the task's own, the one with the fewest prompt tokens in flight."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sunfleet_router.policies import Choice, Reject, tie_break
from sunfleet_router.snapshot import Endpoint


@dataclass(frozen=True, slots=True)
class PrefillFacts:
    """``fingerprint``: KV that the reserved decode pod reads; ``None`` when nothing will be decoded."""

    request_id: str
    fingerprint: str | None
    tried: Collection[str] = ()  # pods (uid) that failed this request


def choose(
    facts: PrefillFacts, pods: Sequence[Endpoint], in_flight: Mapping[str, int], suspects: Collection[str] = ()
) -> Choice | Reject:
    """A prefill always starts at once: waiting is done for decode room, before."""
    able = [pod for pod in pods if facts.fingerprint is None or pod.fingerprint == facts.fingerprint]
    if not able:
        return Reject("none")
    untried = [pod for pod in able if pod.uid not in facts.tried]
    if not untried:
        return Reject("tried")

    def order(pod: Endpoint) -> tuple[bool, int, int, str]:
        return pod.uid in suspects, in_flight.get(pod.uid, 0), tie_break(pod.uid, facts.request_id), pod.uid

    return Choice(min(untried, key=order))
