"""``behavior`` as HorizontalPodAutoscaler of autoscaling/v2 means it: windows, policies, tolerance, defaults. Pure.

The rules are those of Kubernetes' horizontal controller, so that somebody who knows an HPA knows this scaler.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sunfleet_api.scaling import Behavior, ScalingPolicy, ScalingRules

_LONGEST_WINDOW: Final = 3600  # seconds; the API takes no longer one
_LONGEST_PERIOD: Final = 1800


@dataclass(frozen=True)
class Rules:
    """One direction, defaults filled in."""

    window: int  # seconds
    select: str
    policies: tuple[ScalingPolicy, ...]
    tolerance: float


def _policy(kind: str, value: int, period: int) -> ScalingPolicy:
    return ScalingPolicy.model_validate({"type": kind, "value": value, "periodSeconds": period})


_DEFAULT_UP: Final = Rules(0, "Max", (_policy("Pods", 4, 15), _policy("Percent", 100, 15)), 0.1)
_DEFAULT_DOWN: Final = Rules(300, "Max", (_policy("Percent", 100, 15),), 0.1)


def up_rules(behavior: Behavior) -> Rules:
    return _filled(behavior.scale_up, _DEFAULT_UP)


def down_rules(behavior: Behavior) -> Rules:
    return _filled(behavior.scale_down, _DEFAULT_DOWN)


def _filled(given: ScalingRules | None, default: Rules) -> Rules:
    if given is None:
        return default
    return Rules(
        default.window if given.stabilization_window_seconds is None else given.stabilization_window_seconds,
        given.select_policy or default.select,
        given.policies or default.policies,
        default.tolerance if given.tolerance is None else quantity(given.tolerance),
    )


def quantity(value: int | str) -> float:
    """``"0.1"`` or ``"100m"``, as the API's pattern allows."""
    text = str(value)
    return float(text[:-1]) / 1000 if text.endswith("m") else float(text)


@dataclass(frozen=True)
class Change:
    """Pods added or removed at a moment (seconds of the caller's clock), or a recommendation made then."""

    at: float
    count: int


@dataclass(frozen=True)
class History:
    """What the rules look back on."""

    recommended: tuple[Change, ...] = ()
    added: tuple[Change, ...] = ()
    removed: tuple[Change, ...] = ()


def within_tolerance(exact: float, present: int, behavior: Behavior) -> bool:
    """Whether the difference between need and count is too small to act on."""
    if not present:
        return exact <= 0
    ratio = exact / present
    return 1 - down_rules(behavior).tolerance <= ratio <= 1 + up_rules(behavior).tolerance


def stabilized(wanted: int, present: int, behavior: Behavior, history: History, now: float) -> int:
    """Up to the lowest recommendation of the up window, down to the highest of the down window."""
    up, down = up_rules(behavior), down_rules(behavior)
    floor = min([wanted, *_since(history.recommended, now - up.window)])
    ceiling = max([wanted, *_since(history.recommended, now - down.window)])
    return min(max(present, floor), ceiling)


def limited(wanted: int, present: int, behavior: Behavior, history: History, now: float) -> int:
    """No further from ``present`` than the policies allow by now."""
    if wanted > present:
        return min(wanted, max(present, _most(present, up_rules(behavior), history, now)))
    if wanted < present:
        return max(wanted, min(present, _least(present, down_rules(behavior), history, now)))
    return wanted


def _most(present: int, rules: Rules, history: History, now: float) -> int:
    if rules.select == "Disabled":
        return present
    reach = [_up(_start(present, policy, history, now), policy) for policy in rules.policies]
    return min(reach) if rules.select == "Min" else max(reach)


def _least(present: int, rules: Rules, history: History, now: float) -> int:
    if rules.select == "Disabled":
        return present
    reach = [_down(_start(present, policy, history, now), policy) for policy in rules.policies]
    return max(reach) if rules.select == "Min" else min(reach)


def _start(present: int, policy: ScalingPolicy, history: History, now: float) -> int:
    """The count at the beginning of the policy's period."""
    since = now - policy.period_seconds
    return present - sum(_since(history.added, since)) + sum(_since(history.removed, since))


def _up(start: int, policy: ScalingPolicy) -> int:
    return start + policy.value if policy.type == "Pods" else math.ceil(start * (100 + policy.value) / 100)


def _down(start: int, policy: ScalingPolicy) -> int:
    return max(0, start - policy.value if policy.type == "Pods" else math.floor(start * (100 - policy.value) / 100))


def _since(changes: Iterable[Change], cutoff: float) -> list[int]:
    return [change.count for change in changes if change.at > cutoff]


def recommended(history: History, count: int, now: float) -> History:
    """Remember an unstabilised recommendation; one per distinct value is enough, the newest of it."""
    kept = tuple(c for c in _kept(history.recommended, now - _LONGEST_WINDOW) if c.count != count)
    return replace(history, recommended=(*kept, Change(now, count)))


def scaled(history: History, before: int, after: int, now: float) -> History:
    """Remember a change of the count."""
    if after > before:
        return replace(history, added=(*_kept(history.added, now - _LONGEST_PERIOD), Change(now, after - before)))
    if after < before:
        return replace(history, removed=(*_kept(history.removed, now - _LONGEST_PERIOD), Change(now, before - after)))
    return history


def _kept(changes: Sequence[Change], cutoff: float) -> tuple[Change, ...]:
    return tuple(change for change in changes if change.at > cutoff)
