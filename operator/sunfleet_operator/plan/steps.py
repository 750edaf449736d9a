"""How a canary moves on: from its pods and golden prompts through its steps, or back. Pure; no object is known here.

::

    Verifying -> Progressing (step 0, 1, ...) -> Promotable
        \\____________\\_______________________\\___-> RolledBack

Nothing leads out of RolledBack, and no step is taken twice. What cannot be measured moves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sunfleet_api.canary import Analysis, CanaryPhase, CanaryStep
from sunfleet_operator.figures import Measured


@dataclass(frozen=True)
class State:
    """``began``: of the phase, or of the step."""

    phase: CanaryPhase
    step: int
    began: datetime
    reason: str = ""


@dataclass(frozen=True)
class Facts:
    """``refused``: why it is never to get requests (wrong answers, no pod in time), empty while it may. ``waits``: what
    it lacks to get any now. ``measured`` is ``None`` outside of steps."""

    steps: Sequence[CanaryStep]
    analysis: Analysis
    refused: str = ""
    waits: str = ""
    paused: bool = False
    measured: Measured | None = None


def ordered(steps: Sequence[CanaryStep]) -> list[CanaryStep]:
    """As they are taken."""
    return sorted(steps, key=lambda step: step.weight)


def advance(state: State | None, facts: Facts, now: datetime) -> State:
    """The next state; the same one (with a reason of now) while nothing may move."""
    state = state or State("Verifying", 0, now)
    steps = ordered(facts.steps)
    state = replace(state, step=min(state.step, max(0, len(steps) - 1)))  # there may be fewer than there were
    if state.phase == "RolledBack":
        return state
    if given_up := facts.refused or _given_up(state, steps, facts):
        return State("RolledBack", state.step, now, given_up)
    if stays := _stays(state, steps, facts, now):
        return replace(state, reason=stays)
    return _next(state, steps, facts, now)


def _given_up(state: State, steps: Sequence[CanaryStep], facts: Facts) -> str:
    """What the figures of the present step say against it."""
    if state.phase == "Verifying" or not steps or facts.measured is None or facts.measured.fault:
        return ""
    bad = fault(facts.analysis, facts.measured)
    return f"step {state.step + 1} ({steps[state.step].weight} %): {bad}" if bad else ""


def _stays(state: State, steps: Sequence[CanaryStep], facts: Facts, now: datetime) -> str:
    """Why it does not move now; empty when it does."""
    if facts.waits or state.phase == "Promotable":
        return facts.waits or state.reason
    if facts.paused:
        return "canary.paused is true"
    if state.phase == "Verifying" or not steps:
        return ""
    measured = facts.measured or Measured(fault="nothing was measured yet")
    if measured.fault:
        return f"no step is taken without metrics: {measured.fault}"
    elapsed = (now - state.began).total_seconds()
    if elapsed < steps[state.step].pause_seconds or not enough(facts.analysis, measured):
        return _watching(steps, state.step, facts)
    return ""


def _next(state: State, steps: Sequence[CanaryStep], facts: Facts, now: datetime) -> State:
    if not steps:
        return State("Promotable", 0, now, "verified; it has no steps: copy spec.canary up, and remove it")
    step = 0 if state.phase == "Verifying" else state.step + 1
    if step < len(steps):
        return State("Progressing", step, now, _watching(steps, step, facts))
    return State("Promotable", state.step, now, "all steps are taken: copy spec.canary up, and remove it")


def weight(state: State, facts: Facts) -> int:
    """Percent of new requests in this state."""
    steps = ordered(facts.steps)
    if state.phase not in {"Progressing", "Promotable"} or facts.waits or not steps:
        return 0
    return steps[min(state.step, len(steps) - 1)].weight


def enough(analysis: Analysis, measured: Measured) -> bool:
    """Whether a step can be judged."""
    return measured.candidate.requests >= analysis.min_requests


def fault(analysis: Analysis, measured: Measured) -> str:
    """Why the candidate is given up; empty while it is not, or cannot be judged yet.

    Latency is compared where the present revisions have served as many requests; at 100 % there is nothing to compare.
    """
    if not enough(analysis, measured):
        return ""
    candidate, present = measured.candidate, measured.present
    if candidate.error_percent > analysis.max_error_percent:
        return (
            f"{candidate.error_percent:.1f} % of {candidate.requests:.0f} requests failed,"
            f" {analysis.max_error_percent} % are allowed"
        )
    mine, theirs = candidate.per_token, present.per_token
    if mine is None or not theirs or present.requests < analysis.min_requests:
        return ""
    increase = 100 * (mine / theirs - 1)
    if increase > analysis.max_latency_increase_percent:
        return (
            f"{1000 * mine:.1f} ms per output token instead of {1000 * theirs:.1f} ms, {increase:.0f} % more,"
            f" {analysis.max_latency_increase_percent} % are allowed"
        )
    return ""


def _watching(steps: Sequence[CanaryStep], step: int, facts: Facts) -> str:
    """Without figures of now: a status that counts along would be written for ever."""
    return (
        f"step {step + 1} of {len(steps)}: {steps[step].weight} % of the requests for at least"
        f" {steps[step].pause_seconds} s and {facts.analysis.min_requests} requests"
    )


def shares(base: dict[str, int], revision: str, percent: int) -> dict[str, int]:
    """Percent of new requests per revision with the candidate beside the others. Nothing, where these serve nothing."""
    if not base or not percent:
        return dict(base)
    left = 100 - percent
    exact = {name: share * left / 100 for name, share in base.items()}
    made = {name: int(share) for name, share in exact.items()}
    for name in sorted(exact, key=lambda name: made[name] - exact[name])[: left - sum(made.values())]:
        made[name] += 1
    return {**made, revision: percent}
