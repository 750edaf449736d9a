"""Prefill pods: the task's own, by what the prompt begins with, else the one with the fewest tokens in flight."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from sunfleet_router.fleet.snapshot import Endpoint
from sunfleet_router.policies import NOBODY, Choice, Reject, affinity, standing, tie_break


@dataclass(slots=True)  # not frozen, see Ask
class PrefillFacts:
    """``fingerprint``: KV that the reserved decode pod reads; ``None`` when nothing will be decoded. ``alike``: see
    :func:`sunfleet_router.bodies.beginning.beginning`; "" for no preference.
    """

    request_id: str
    fingerprint: str | None
    tried: Collection[str] = ()  # pods (uid) that failed this request
    avoided: Collection[str] = ()  # pods (uid) that it had better not meet again
    alike: str = ""
    tokens: int = 0  # of the prompt


def choose(
    facts: PrefillFacts,
    pods: Sequence[Endpoint],
    in_flight: Mapping[str, int],
    suspects: Collection[str] = (),
    *,
    ejected: Mapping[str, float] = NOBODY,
) -> Choice | Reject:
    """A prefill always starts at once: waiting is done for decode room, before. Pods in ``suspects`` come last."""
    wanted = facts.fingerprint
    asked: Sequence[Endpoint] | Reject
    able = asked = [pod for pod in pods if wanted is None or pod.fingerprint == wanted]
    if not able:
        return Reject("none")
    if facts.tried:
        able = asked = [pod for pod in able if pod.uid not in facts.tried]
        if not able:
            return Reject("tried")
    if ejected:
        asked = standing(able, ejected)
        if isinstance(asked, Reject):
            return asked
    equals = asked
    if suspects or facts.avoided:
        best = min(_doubt(facts, pod, suspects) for pod in asked)
        equals = [pod for pod in asked if _doubt(facts, pod, suspects) == best]
    if len(equals) == 1:
        return Choice(equals[0])
    if facts.alike:
        return Choice(affinity.choose(facts.alike, facts.tokens, equals, in_flight))

    def order(pod: Endpoint) -> tuple[int, int, str]:
        return in_flight.get(pod.uid, 0), tie_break(pod.uid, facts.request_id), pod.uid

    return Choice(min(equals, key=order))


def choose_again(
    facts: PrefillFacts,
    pods: Sequence[Endpoint],
    in_flight: Mapping[str, int],
    suspects: Collection[str] = (),
    *,
    ejected: Mapping[str, float] = NOBODY,
) -> Choice | Reject:
    """As :func:`choose`, for a stream that must go on: where only pods are left that failed it, one of them."""
    choice = choose(facts, pods, in_flight, suspects, ejected=ejected)
    if not isinstance(choice, Reject):
        return choice
    return choose(replace(facts, tried=()), pods, in_flight, suspects, ejected=ejected)


def _doubt(facts: PrefillFacts, pod: Endpoint, suspects: Collection[str]) -> tuple[bool, bool]:
    return pod.uid in suspects, pod.uid in facts.avoided
