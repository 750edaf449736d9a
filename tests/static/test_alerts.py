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
    found = {f"sunfleet_router_{name}_total" for name in re.findall(r'_counter\(\s*"(\w+)"', router)}
    return found | {f"{name}_total" for name in re.findall(r'"(sunfleet_\w+)"', pods)}


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


def test_the_exactness_alert_has_no_window() -> None:
    """The counter of a pod that ended in between would otherwise be forgotten before it was seen twice."""
    first = ALERTS[0]
    assert first["alert"] == "SunfleetDecoderComputedPrompt"
    assert "[" not in first["expr"]
    assert first["labels"]["severity"] == "critical"
