"""Alerts name metrics that exist, and each has its page in the runbook."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from checkout import ROOT
from exports import exported

RULES = ROOT / "manifests/components/alerts/rules.yaml"
EVERY: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(RULES.read_text())["spec"]["groups"] for rule in group["rules"]
]
ALERTS = [rule for rule in EVERY if "alert" in rule]
EACH = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])


@pytest.mark.parametrize("rule", EVERY, ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rules_metrics_are_exported(rule: dict[str, Any]) -> None:
    recorded = {one["record"] for one in EVERY if "record" in one}
    used = set(re.findall(r"[\w:]*sunfleet_[\w:]+", rule["expr"])) - recorded
    assert used or recorded & set(re.findall(r"[\w:]+", rule["expr"]))
    assert used <= exported()


def test_a_recordings_name_says_level_metric_and_operation() -> None:
    for rule in EVERY:
        if "record" in rule:
            level, metric, operation = rule["record"].split(":")
            assert level.replace("_", ", ") in rule["expr"]
            assert metric.startswith("sunfleet_")
            assert operation in {"rate5m", "ratio_rate5m", "p95_rate5m", "ratio"}


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
