"""Decode pods by reserved KV over the whole pool, never by task."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from sunfleet_router.fleet.snapshot import Endpoint
from sunfleet_router.policies import FIRST_TWO, NOBODY, Choice, Reject, Wait, standing, tie_break


@dataclass(slots=True)  # not frozen, see Ask
class DecodeFacts:
    """``tokens``: KV that the request may fill, prompt and output. ``fingerprints``: KV that its prefill pods make."""

    request_id: str
    tokens: int
    fingerprints: Collection[str]
    tried: Collection[str] = ()  # pods (uid) that failed this request
    avoided: Collection[str] = ()  # pods (uid) that it had better not meet again


def choose(
    facts: DecodeFacts,
    pool: Sequence[Endpoint],
    taken: Mapping[str, int],
    suspects: Collection[str] = (),
    *,
    ejected: Mapping[str, float] = NOBODY,
    two: bool = False,
) -> Choice | Wait | Reject:
    """The pod that is emptiest relative to its size once this request is on it; ``taken``: KV tokens by uid.

    A request larger than a whole pod may have an empty one: the engine limits the length, not we. Pods in ``suspects``
    come last, as do those that the request avoids; ``ejected`` ones get nothing while there is another. ``two``: of two
    that chance picks the emptier one, which is what keeps several routers with the same, slightly old picture from all
    going to the same pod.
    """
    asked: Sequence[Endpoint] | Reject
    able = asked = [pod for pod in pool if pod.capacity > 0 and pod.fingerprint in facts.fingerprints]
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
    tokens = facts.tokens
    roomy = [
        ((held + tokens) / pod.capacity, pod)
        for pod in asked
        if (held := taken.get(pod.uid, 0)) + tokens <= pod.capacity or not held  # as :func:`fits`, in every request
    ]
    if not roomy:
        return Wait()
    if len(roomy) == 2 and not (suspects or facts.avoided) and roomy[0][0] != roomy[1][0]:  # as mostly
        return Choice(roomy[0][1] if roomy[0][0] < roomy[1][0] else roomy[1][1])
    if len(roomy) > 1 and (suspects or facts.avoided):
        least = min([_doubt(facts, pod, suspects) for _, pod in roomy])
        roomy = [one for one in roomy if _doubt(facts, one[1], suspects) == least]
    if two and len(roomy) > 1:
        ranked = [(tie_break(pod.uid, facts.request_id), pod.uid, full, pod) for full, pod in roomy]
        roomy = [one[2:] for one in sorted(ranked, key=FIRST_TWO)[:2]]
    emptiest = min([full for full, _ in roomy])
    best = [pod for full, pod in roomy if full == emptiest]
    if len(best) > 1:
        ties = [(tie_break(pod.uid, facts.request_id), pod.uid, pod) for pod in best]
        best = [min(ties, key=FIRST_TWO)[2]]
    return Choice(best[0])


def choose_again(
    facts: DecodeFacts,
    pool: Sequence[Endpoint],
    taken: Mapping[str, int],
    suspects: Collection[str] = (),
    *,
    ejected: Mapping[str, float] = NOBODY,
    two: bool = False,
) -> Choice | Wait | Reject:
    """As :func:`choose`, for a stream that must go on: where only pods are left that failed it, one of them that is no
    suspect any more is better than none.
    """
    choice = choose(facts, pool, taken, suspects, ejected=ejected, two=two)
    if not isinstance(choice, Reject):
        return choice
    rested = [pod for pod in pool if pod.uid not in suspects]
    return choose(replace(facts, tried=()), rested, taken, ejected=ejected, two=two)


def fits(tokens: int, pod: Endpoint, taken: Mapping[str, int]) -> bool:
    """Whether a pod that holds KV at all has room for so much more, or is empty."""
    capacity = pod.capacity
    return 0 < capacity >= taken.get(pod.uid, 0) + min(capacity, tokens)


def _doubt(facts: DecodeFacts, pod: Endpoint, suspects: Collection[str]) -> tuple[bool, bool]:
    return pod.uid in suspects, pod.uid in facts.avoided
