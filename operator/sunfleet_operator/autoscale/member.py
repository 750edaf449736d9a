"""The wish of one object, before the budget: fresh figures? any work? how many pods? how fast? Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from sunfleet_api.scaling import Autoscaling
from sunfleet_operator.autoscale import behavior, need
from sunfleet_operator.autoscale.behavior import Change
from sunfleet_operator.autoscale.capability import Throughput, learn, seen
from sunfleet_operator.autoscale.decision import Decision, Why
from sunfleet_operator.autoscale.need import PrefillLoad
from sunfleet_operator.autoscale.signals import DecodeSignals, PrefillSignals, Signals, figures, missing, number, usable
from sunfleet_operator.autoscale.state import Pods, State

_PREFILL: Final = (
    "age", "in_flight", "requests", "backlog", "oldest", "token_rate", "prompt_rate", "concurrency", "arriving",
)  # fmt: skip
_LEAST_TREND: Final = 3  # earlier needs that a trend is drawn through, however soon pods start
_NOISE: Final = 0.01  # pods: less than that above a whole number is no need of another one
_MOST: Final = 1e9  # pods: a figure next to zero below the line asks for more than there are numbers
_DECODE: Final = ("age", "reserved", "queued", "capacity", "endpoints")


@dataclass(frozen=True)
class Member:
    """One object that scales by itself. ``signals`` of ``None``: the query itself failed, as ``fault`` says."""

    auto: Autoscaling
    pods: Pods
    signals: Signals | None
    fault: str = ""
    partial: str = ""  # load that the figures do not hold: they may raise the count, never lower it
    paused: bool = False
    window: float = 60.0  # seconds that rates are over

    @property
    def floor(self) -> int:
        """Least count while there is work."""
        return max(1, self.auto.min_replicas)


@dataclass(frozen=True)
class Wish:
    decision: Decision
    state: State


def wish(member: Member, before: State, now: float) -> Wish:
    """What this object should have now, and what to remember. ``now`` never runs backwards."""
    made = _wish(member, before, now)
    present, unknown = member.pods.wanted, bool(member.partial or member.paused or made.decision.blind)
    made = replace(made, state=_held(made.state, before, now, member.window if unknown else None))
    if not member.partial or made.decision.replicas >= present:
        return made
    text = f"holding {present}: {member.partial}"
    held = replace(made.decision, replicas=present, why=Why.METRICS_MISSING, message=text, wished=present)
    return replace(made, decision=held)


def _wish(member: Member, before: State, now: float) -> Wish:
    state = _counted(member, before, now)
    if member.paused:
        present = member.pods.wanted
        held = Decision(present, Why.PAUSED, "scaling is paused by an annotation", wished=present)
        return Wish(_with_figures(held, member, state, None), replace(state, decided_at=now))
    why = _unusable(member)
    if why is not None:
        return _blind(member, state, now, *why)
    signals = member.signals
    assert signals is not None  # noqa: S101 - _unusable said so
    state = _learnt(member, signals, state, now)
    state = replace(state, seen_at=now, blind_since=None, decided_at=now)
    if isinstance(signals, PrefillSignals):
        rested = _zero(member, signals, state)
        if rested is not None:
            return Wish(_with_figures(rested, member, state, None), state)
        exact = _prefill(member, signals, state)
    else:
        found = _decode(member, signals, state)
        if found is None:
            return _blind(member, state, now, Why.METRICS_MISSING, "no decode pod has told its KV capacity yet")
        exact = found
    return _settle(member, exact, state, now)


def _held(state: State, before: State, now: float, window: float | None) -> State:
    """While the load is not known there may have been some: the idle clock and the window of scaling in begin anew,
    but for a hole shorter than ``window``, over which counters have counted. ``None``: it is known."""
    if window is None:
        return replace(state, hole_since=None)
    began = now if before.decided_at is None else before.decided_at
    state = replace(state, hole_since=began if before.hole_since is None else before.hole_since)
    return state if now - (state.hole_since or 0.0) < window else replace(state, held_at=now, active_at=now)


def _counted(member: Member, state: State, now: float) -> State:
    """Take in what became of the last decision: whoever changed the count, the rate policies count it."""
    present, history = member.pods.wanted, state.history
    if state.last_count is not None:
        history = behavior.scaled(history, state.last_count, present, now)
    if not history.recommended:
        history = replace(history, recommended=(Change(now, present),))
    return replace(state, history=history, last_count=present)


def _unusable(member: Member) -> tuple[Why, str] | None:
    """Why the figures cannot be used, ``None`` when they can."""
    if member.signals is None:
        return Why.METRICS_MISSING, member.fault or "the metrics could not be read"
    absent = missing(member.signals, _PREFILL if isinstance(member.signals, PrefillSignals) else _DECODE)
    if absent:
        return Why.METRICS_MISSING, f"no usable series for: {', '.join(absent)}"
    age, most = member.signals.age or 0.0, member.auto.metrics_timeout_seconds
    if age > most:
        return Why.METRICS_STALE, f"the newest sample is older than metricsTimeoutSeconds ({most})"
    return None


def _blind(member: Member, state: State, now: float, why: Why, message: str) -> Wish:
    """Without figures nothing ever scales in; after the timeout the fallback may raise the count.

    What must never be at zero gets its least count all the same: a pool that waited for its first pod to tell its KV
    capacity, or a task whose router has not told of it, would wait for ever.
    """
    auto = member.auto
    present = member.pods.wanted if auto.scale_to_zero else max(member.pods.wanted, member.floor)
    since = now if state.blind_since is None else state.blind_since
    kept = replace(state, blind_since=since, decided_at=now, needs=())
    if auto.fallback == "Hold" or now - since < auto.metrics_timeout_seconds:
        return Wish(Decision(present, why, f"holding {present}: {message}", wished=present), kept)
    count = max(present, min(int(auto.fallback), auto.max_replicas))
    text = f"fallback to at least {auto.fallback}, never fewer than now: {message}"
    return Wish(Decision(count, Why.FALLBACK, text, wished=count), kept)


def _learnt(member: Member, signals: Signals, state: State, now: float) -> State:
    """What the pods did since the last time."""
    if isinstance(signals, DecodeSignals):
        if signals.capacity and signals.endpoints:
            return replace(state, capacity_per_pod=signals.capacity / signals.endpoints)
        return state
    working = bool(signals.in_flight or signals.backlog or signals.requests)
    if working or not member.pods.ready or state.active_at is None:
        state = replace(state, active_at=now)
    if state.decided_at is None:
        return state
    seconds, tokens = max(0.0, now - state.decided_at), signals.token_rate or 0.0
    learnt = learn(
        state.throughput,
        token_rate=tokens,
        concurrency=signals.concurrency or 0.0,
        ready=member.pods.ready,
        seconds=seconds,
    )
    lengths = seen(
        state.lengths,
        prompt_rate=signals.prompt_rate or 0.0,
        token_rate=tokens,
        square_rate=(signals.square_rate or 0.0) if usable(signals.square_rate) else 0.0,
        seconds=seconds,
    )
    return replace(state, throughput=learnt, lengths=lengths)


def _zero(member: Member, signals: PrefillSignals, state: State) -> Decision | None:
    """To zero and back; ``None`` when the count is a matter of load."""
    present, rule = member.pods.wanted, member.auto.scale_to_zero
    working = bool(signals.in_flight or signals.backlog or signals.requests)
    if not present:
        if working:
            return Decision(member.floor, Why.WOKEN, "work came while there were no pods", wished=member.floor)
        if rule is not None:
            return Decision(0, Why.IDLE, "no work", wished=0)
        return None
    if rule is None or working or not member.pods.ready:
        return None
    idle = (state.decided_at or 0.0) - (state.active_at or 0.0)
    if idle < rule.idle_seconds or behavior.down_rules(member.auto.behavior).select == "Disabled":
        return None
    return Decision(0, Why.IDLE, f"no work for {number(idle)} s (idleSeconds {rule.idle_seconds})", wished=0)


def _prefill(member: Member, signals: PrefillSignals, state: State) -> float:
    load = PrefillLoad(
        token_rate=signals.token_rate or 0.0,
        prompt_rate=signals.prompt_rate or 0.0,
        arriving=signals.arriving or 0.0,
        backlog=signals.backlog or 0.0,
        oldest=signals.oldest or 0.0,
        per_pod=state.throughput.per_pod,
        recent=signals.recent if usable(signals.recent) else None,
        window=member.window,
        variability=state.lengths.variability,
        startup=member.pods.startup_seconds or 0.0,
    )
    return need.prefill_need(load, member.auto.targets, ready=member.pods.ready, present=member.pods.wanted)


def _decode(member: Member, signals: DecodeSignals, state: State) -> float | None:
    if not state.capacity_per_pod:
        return None
    return need.decode_need(signals.reserved or 0.0, signals.queued or 0.0, state.capacity_per_pod, member.auto.targets)


def _settle(member: Member, exact: float, state: State, now: float) -> Wish:
    """From a need to a count: tolerance, limits, windows, rates."""
    auto, present, exact = member.auto, member.pods.wanted, min(exact, _MOST)
    ahead = member.pods.startup_seconds or 0.0
    old = [(at, n) for at, n in state.needs if at > now - ahead] if ahead else []
    remembered = (*max(old, list(state.needs[-_LEAST_TREND:]), key=len), (now, exact))
    if auto.prediction == "Trend":
        exact = max(exact, need.predicted(remembered, now, ahead))
    raw = present if behavior.within_tolerance(exact, present, auto.behavior) else math.ceil(exact - _NOISE)
    if not member.pods.ready and present:
        raw = max(raw, present)  # before the first pod serves there is nothing to judge by
    bounded = min(max(raw, member.floor), auto.max_replicas)
    steady = behavior.stabilized(bounded, present, auto.behavior, state.history, now)
    if state.held_at is not None and state.held_at > now - behavior.down_rules(auto.behavior).window:
        steady = max(steady, present)
    count = behavior.limited(steady, present, auto.behavior, state.history, now)
    count = min(max(count, member.floor), auto.max_replicas)
    kept = replace(state, history=behavior.recommended(state.history, bounded, now), needs=remembered)
    decision = _explained(member, exact, raw, bounded, count)
    return Wish(_with_figures(decision, member, state, exact), kept)


def _explained(member: Member, exact: float, raw: int, bounded: int, count: int) -> Decision:
    present, needed = member.pods.wanted, f"{number(exact)} pods needed"
    if count == present != bounded:
        text = f"{needed}, {present} for now: a stabilisation window or policy of behavior holds"
        return Decision(count, Why.STABILIZING, text, wished=count)
    if count == present and raw != bounded:
        text = f"{needed}, limits are {member.floor} to {member.auto.max_replicas}"
        return Decision(count, Why.WITHIN_LIMITS, text, wished=count)
    if count == present and not member.pods.ready and present:
        return Decision(count, Why.NEVER_READY, f"{needed}, but no pod is Ready yet", wished=count)
    if count == present:
        return Decision(count, Why.STEADY, needed, wished=count)
    if (count > present) != (raw > present):  # no load moved it there
        text = f"{needed}, {count} by the limits of {member.floor} to {member.auto.max_replicas}"
        return Decision(count, Why.WITHIN_LIMITS, text, wished=count)
    way = Why.LOAD_ROSE if count > present else Why.LOAD_FELL
    return Decision(count, way, f"{needed}, {count} after limits, windows and policies", wished=count)


def _with_figures(decision: Decision, member: Member, state: State, exact: float | None) -> Decision:
    found: Mapping[str, float | None] = {
        "need": exact,
        "podTokensPerSecond": state.throughput.per_pod,
        "podKvTokens": state.capacity_per_pod,
        "lengthVariability": state.lengths.variability if isinstance(member.signals, PrefillSignals) else None,
        "readyPods": float(member.pods.ready),
        "wantedPods": float(member.pods.wanted),
    }
    inputs = {name: number(value) for name, value in found.items() if value is not None}
    return replace(decision, inputs={**(figures(member.signals) if member.signals else {}), **inputs})


def seeded(inputs: Mapping[str, str]) -> State:
    """A state that believes what an earlier process had learnt and left in ``status.scaling.inputs``."""
    return State(
        throughput=Throughput.known(value) if (value := _figure(inputs, "podTokensPerSecond")) else Throughput(),
        capacity_per_pod=_figure(inputs, "podKvTokens"),
    )


def _figure(inputs: Mapping[str, str], name: str) -> float | None:
    try:
        value = float(inputs[name])
    except (KeyError, ValueError):
        return None
    return value if math.isfinite(value) and value > 0 else None
