"""Figures and objects for tests of the scaler, with only what a test cares about written out."""

from __future__ import annotations

from typing import Any

from sunfleet_api.scaling import Autoscaling
from sunfleet_operator.autoscale.member import Member
from sunfleet_operator.autoscale.signals import DecodeSignals, PrefillSignals, Signals
from sunfleet_operator.autoscale.state import Pods

# No window and no rate limit in either direction: what is needed is what is decided.
AT_ONCE = {
    "scaleUp": {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 1000, "periodSeconds": 1}]},
    "scaleDown": {"stabilizationWindowSeconds": 0, "policies": [{"type": "Percent", "value": 100, "periodSeconds": 1}]},
}


def auto(**fields: Any) -> Autoscaling:
    """``autoscaling`` in camelCase; at most 10 pods unless the test says otherwise."""
    return Autoscaling.model_validate({"maxReplicas": 10, **fields})


def prefill(**figures: float | None) -> PrefillSignals:
    """Fresh figures of a task without any work; what came is what was served, unless the test says otherwise."""
    quiet: dict[str, float | None] = dict.fromkeys(
        ("age", "in_flight", "requests", "backlog", "oldest", "token_rate", "prompt_rate", "concurrency"), 0.0
    )
    came = figures.get("token_rate", 0.0)
    return PrefillSignals(**{**quiet, "arriving": came, "recent": came, **figures})


def decode(**figures: float | None) -> DecodeSignals:
    """Fresh figures of a pool of one pod with 1000 KV tokens and no work."""
    quiet = {"age": 0.0, "reserved": 0.0, "queued": 0.0, "capacity": 1000.0, "endpoints": 1.0}
    return DecodeSignals(**{**quiet, **figures})


def pods(wanted: int, *, ready: int | None = None, **more: Any) -> Pods:
    """``wanted`` pods, all of them there and Ready unless the test says otherwise."""
    return Pods(wanted, ready=wanted if ready is None else ready, live=more.pop("live", wanted), **more)


def member(
    wanted: int, signals: Signals | None, *, ready: int | None = None, paused: bool = False, **fields: Any
) -> Member:
    """An object that acts at once, with ``fields`` of its ``autoscaling``."""
    return Member(auto(**{"behavior": AT_ONCE, **fields}), pods(wanted, ready=ready), signals, paused=paused)
