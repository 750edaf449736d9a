"""A fleet of fake engines whose one task is scaled from outside, by what the samples show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from support import fakes, scaled
from support.fleets import Fleet
from support.kubectl import Json, Kubectl

SAMPLES = Path(__file__).resolve().parents[2] / "manifests/samples/scalers"
HOLD_SECONDS = 120  # for a request at zero


@dataclass(frozen=True)
class ExternalFleet(Fleet):
    """One task, BUSY."""

    @property
    def model_name(self) -> str:
        """Without a slash: it is the value of a label selector."""
        return f"{self.namespace}.{scaled.BUSY}"

    def ready(self, role: str) -> list[Json]:
        """Live pods that serve."""
        return [pod for pod in self.pods(role) if fakes.condition(pod, "Ready").get("status") == "True"]


def external_fleet(kubectl: Kubectl, namespace: str, image: str, *, least: int) -> ExternalFleet:
    """Apply it, and wait until it serves. ``least``: ``minReplicas``; at 0 requests are held."""
    decoder = scaled.behaving(fakes.decoder(image), scaled.DECODE)
    model = scaled.behaving(
        fakes.sun_model(scaled.BUSY, "hf://acme/maths", model_name=f"{namespace}.{scaled.BUSY}"), scaled.PREFILL
    )
    rules = {"mode": "External", "minReplicas": least, "maxReplicas": scaled.MOST}
    model["spec"] |= {"autoscaling": rules, "traffic": {"queue": {"holdSeconds": HOLD_SECONDS}}}
    del model["spec"]["replicas"]
    fleet = ExternalFleet(kubectl, namespace, decoder, [model])
    kubectl.apply(fleet.manifests, namespace)
    fleet.wait_ready()
    return fleet


def sample(name: str) -> dict[str, Any]:
    """One of the shipped samples."""
    found: dict[str, Any] = yaml.safe_load((SAMPLES / name).read_text())
    return found
