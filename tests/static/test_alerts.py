"""Alerts name metrics that exist, and each has its page in the runbook."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from checkout import ROOT

RULES = ROOT / "manifests/components/alerts/rules.yaml"
ALERTS: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(RULES.read_text())["spec"]["groups"] for rule in group["rules"]
]
EACH = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])


def exported() -> set[str]:
    """Counters by the name that Prometheus sees: the code leaves their prefix to a constant, and ``_total`` out."""
    router = (ROOT / "router/sunfleet_router/metrics.py").read_text()
    pods = (ROOT / "worker_images/vllm/sunfleet_worker/frontend/metrics.py").read_text()
    operator = (ROOT / "operator/sunfleet_operator/metrics.py").read_text()
    counters = {f"sunfleet_router_{name}_total" for name in re.findall(r'_counter\(\s*"(\w+)"', router)}
    gauges = {f"sunfleet_router_{name}" for name in re.findall(r'_gauge\(\s*"(\w+)"', router)}
    of_pods = set(re.findall(r'Gauge\(\s*"(sunfleet_\w+)"', pods))
    of_operator = set(re.findall(r'= \w+\(\s*"(sunfleet_operator_\w+)"', operator))
    return (
        counters
        | gauges
        | of_pods
        | of_operator
        | {f"{name}_total" for name in re.findall(r'Counter\(\s*"(sunfleet_\w+)"', pods)}
    )


@EACH
def test_an_alerts_metrics_are_exported(alert: dict[str, Any]) -> None:
    metrics = set(re.findall(r"sunfleet_\w+", alert["expr"]))
    assert metrics
    assert metrics <= exported()


@EACH
def test_an_alert_has_its_page_in_the_runbook(alert: dict[str, Any]) -> None:
    file, _, anchor = alert["annotations"]["runbook"].partition("#")
    assert anchor == alert["alert"].lower()
    assert f"## {alert['alert']}\n" in (ROOT / file).read_text()


@pytest.mark.parametrize(("position", "name"), [(0, "SunfleetDecoderComputedPrompt"), (1, "SunfleetShadowMismatch")])
def test_the_exactness_alerts_come_first_and_have_no_window(position: int, name: str) -> None:
    """The counter of a process that ended in between would otherwise be forgotten before it was seen twice."""
    alert = ALERTS[position]
    assert alert["alert"] == name
    assert "[" not in alert["expr"]
    assert alert["labels"]["severity"] == "critical"
