"""All objects of one decoder together: each one's wish, then the budget that they share. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sunfleet_operator.autoscale import budget, member
from sunfleet_operator.autoscale.budget import Amounts, Party
from sunfleet_operator.autoscale.decision import Decision, Why
from sunfleet_operator.autoscale.member import Member
from sunfleet_operator.autoscale.state import Pods, State


@dataclass(frozen=True)
class Fixed:
    """An object whose count a person or an external scaler gives; it counts against the budget like the others."""

    pods: Pods
    replicas: int


@dataclass(frozen=True)
class Fleet:
    """A decode pool and its tasks, by key. ``limits`` are the ``gpuBudget``, empty when there is none. The pool serves
    every task, so its weight is that of all tasks together."""

    pool: str
    members: Mapping[str, Member | Fixed]
    limits: Amounts = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)  # of tasks; 1 where none is given


@dataclass(frozen=True)
class Outcome:
    """``rooms``: pods that each roll-out may have above its count, empty without a budget. ``exceeded``: what the
    budget lacks, empty when it suffices."""

    decisions: Mapping[str, Decision]
    states: Mapping[str, State]
    rooms: Mapping[str, int] = field(default_factory=dict)
    exceeded: str = ""


def decide(fleet: Fleet, states: Mapping[str, State], now: float) -> Outcome:
    """A decision for every member, and the states to hand in the next time."""
    decisions: dict[str, Decision] = {}
    kept: dict[str, State] = {}
    for key, one in fleet.members.items():
        if isinstance(one, Fixed):
            decisions[key] = Decision(one.replicas, Why.STEADY, "spec.replicas", wished=one.replicas)
            continue
        wished = member.wish(one, states.get(key, State()), now)
        decisions[key], kept[key] = wished.decision, wished.state
    if not fleet.limits:
        return Outcome(decisions, kept)
    parties = [_party(fleet, key, decisions[key]) for key in sorted(fleet.members)]
    counts = budget.now(parties, fleet.limits)
    decisions = {key: _within(decision, counts[key], fleet) for key, decision in decisions.items()}
    rooms = budget.surges(parties, fleet.limits, counts)
    return Outcome(decisions, kept, rooms, _exceeded(parties, fleet.limits))


def _party(fleet: Fleet, key: str, decision: Decision) -> Party:
    one = fleet.members[key]
    fixed = isinstance(one, Fixed)
    floor = one.replicas if isinstance(one, Fixed) else min(one.floor, decision.replicas)
    weight = fleet.weights.get(key, 1.0)
    if key == fleet.pool:
        weight = sum(fleet.weights.get(other, 1.0) for other in fleet.members if other != key) or 1.0
    held = fixed or decision.blind or decision.why == Why.PAUSED
    return Party(key, one.pods, decision.replicas, floor, weight, keeps=held)


def _within(decision: Decision, count: int, fleet: Fleet) -> Decision:
    if count == decision.replicas:
        return decision
    limits = ", ".join(f"{limit} {name}" for name, limit in sorted(fleet.limits.items()))
    text = f"{decision.message}; {count} fit into gpuBudget ({limits}) now"
    return replace(decision, replicas=count, why=Why.BUDGET, message=text)


def _exceeded(parties: Sequence[Party], limits: Amounts) -> str:
    """In words, per resource that is asked for more than there is."""
    lacking = [
        f"{asked} {name} are wanted, {limit} are allowed"
        for name, limit in sorted(limits.items())
        if (asked := sum(party.wish * party.pods.each.get(name, 0) for party in parties)) > limit
    ]
    return "; ".join(lacking)
