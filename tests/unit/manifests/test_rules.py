"""Alerts and recordings in Prometheus' own hands: it reads them, and each does what its story says."""

from __future__ import annotations

import json
import re
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
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110, check=False)


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


def test_every_panels_query_is_one(folder: Path) -> None:
    """As Grafana sends it, each as a recording: Prometheus' own parser reads no other way."""
    boards = [json.loads(path.read_text()) for path in sorted((RULES.parents[1] / "dashboards").glob("*.json"))]
    texts = [target["expr"] for board in boards for panel in board["panels"] for target in panel["targets"]]
    asked = [re.sub(r"\$(?!__)\w+", ".+", text.replace("$__rate_interval", "1m")) for text in texts]
    rules = [{"record": f"query:{number}", "expr": text} for number, text in enumerate(asked)]
    (folder / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    read = promtool(folder, "check", "rules", "panels.yaml")
    assert read.returncode == 0, read.stdout + read.stderr
    assert f"{len(texts)} rules found" in read.stdout


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


def test_a_rule_that_is_wrong_would_be_found(folder: Path) -> None:
    text = (folder / "rules.yaml").read_text()
    (folder / "rules.yaml").write_text(text.replace("> 0", "> 1e9"))
    assert promtool(folder, "test", "rules", STORIES.name).returncode != 0
