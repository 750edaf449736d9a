"""Alerts and recordings in Prometheus' own hands: it reads them, and each does what its story says."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

RULES = Path(__file__).parents[3] / "manifests/components/alerts/rules.yaml"
STORIES = Path(__file__).with_name("rules_test.yaml")
SPEC: dict[str, Any] = yaml.safe_load(RULES.read_text())["spec"]


def promtool(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["promtool", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The rules as a Prometheus without its Operator would read them, and the stories beside them."""
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(SPEC))
    (tmp_path / STORIES.name).write_text(STORIES.read_text())
    return tmp_path


def test_every_rule_is_one_and_does_what_its_story_says(folder: Path) -> None:
    checked = promtool(folder, "check", "rules", "rules.yaml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    told = promtool(folder, "test", "rules", STORIES.name)
    assert told.returncode == 0, told.stdout + told.stderr


def test_every_rule_has_a_story_in_which_it_acts_and_every_alert_one_in_which_it_does_not() -> None:
    stories = yaml.safe_load(STORIES.read_text())["tests"]
    alerts = [case for story in stories for case in story.get("alert_rule_test", ())]
    queries = [case["expr"] for story in stories for case in story.get("promql_expr_test", ())]
    for rule in (rule for group in SPEC["groups"] for rule in group["rules"]):
        if "record" in rule:
            assert any(rule["record"] in query for query in queries), f"no story of {rule['record']}"
            continue
        of_it = [case for case in alerts if case["alertname"] == rule["alert"]]
        assert any(case.get("exp_alerts") for case in of_it), f"no story in which {rule['alert']} fires"
        assert any(not case.get("exp_alerts") for case in of_it), f"no story in which {rule['alert']} does not fire"


@pytest.mark.parametrize("change", ["> 0", "rate5m"])
def test_a_rule_that_is_wrong_would_be_found(folder: Path, change: str) -> None:
    text = (folder / "rules.yaml").read_text()
    (folder / "rules.yaml").write_text(text.replace(change, {"> 0": "> 1e9", "rate5m": "rate6m"}[change]))
    assert promtool(folder, "test", "rules", STORIES.name).returncode != 0
