"""Prefill pods: the task's own, the one with the fewest prompt tokens in flight."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from sunfleet_router.policies import Choice, Reject, tie_break
from sunfleet_router.snapshot import Endpoint


@dataclass(frozen=True, slots=True)
class PrefillFacts:
    """``fingerprint``: KV that the reserved decode pod reads; ``None`` when nothing will be decoded."""

    request_id: str
    fingerprint: str | None
    tried: Collection[str] = ()  # pods (uid) that failed this request
    avoided: Collection[str] = ()  # pods (uid) that it had better not meet again


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

    def order(pod: Endpoint) -> tuple[bool, bool, int, int, str]:
        tie = tie_break(pod.uid, facts.request_id)
        return pod.uid in suspects, pod.uid in facts.avoided, in_flight.get(pod.uid, 0), tie, pod.uid

    return Choice(min(untried, key=order))


def choose_again(
    facts: PrefillFacts, pods: Sequence[Endpoint], in_flight: Mapping[str, int], suspects: Collection[str] = ()
) -> Choice | Reject:
    """As :func:`choose`, for a stream that must go on: where only pods are left that failed it, one of them."""
    choice = choose(facts, pods, in_flight, suspects)
    return choose(replace(facts, tried=()), pods, in_flight, suspects) if isinstance(choice, Reject) else choice
