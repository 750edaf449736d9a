"""Dashboards and monitors: every query uses only metrics that something exports, every panel has its place."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from checkout import ROOT
from exports import exported
from grafana_schema import faults

FOLDER = ROOT / "manifests/components/dashboards"
BOARDS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
EACH = pytest.mark.parametrize("name", BOARDS)
_NAME = re.compile(r"(?:sunfleet_|vllm:)\w+")


@EACH
def test_a_dashboard_is_one_by_grafanas_schema(name: str) -> None:
    assert faults(BOARDS[name]) == []


WRONG: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a field that Grafana does not know": (lambda board: board["panels"][0].update(colour="red"), "colour"),
    "a number as text": (lambda board: board["panels"][0]["gridPos"].update(x="12"), "grid_pos.x"),
    "a choice that there is not": (lambda board: board["panels"][0]["options"]["legend"].update(displayMode="wild"),
                                   "display_mode"),
    "a field of a query": (lambda board: board["panels"][0]["targets"][0].update(query="up"), "query"),
    "a style of a line": (lambda board: board["panels"][0]["fieldConfig"]["defaults"].update(custom={"drawStyle": "x"}),
                           "draw_style"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG, ids=str)
def test_what_grafana_would_not_understand_is_found(case: str) -> None:
    change, says = WRONG[case]
    board = copy.deepcopy(BOARDS["fleet"])
    change(board)
    assert [fault for fault in faults(board) if says in fault]


@EACH
def test_every_query_uses_only_metrics_that_are_exported(name: str) -> None:
    known = exported()
    texts = [target["expr"] for panel in BOARDS[name]["panels"] for target in panel["targets"]]
    texts += [v["query"]["query"] for v in BOARDS[name]["templating"]["list"] if isinstance(v["query"], dict)]
    assert len(texts) > 8
    for text in texts:
        used = set(_NAME.findall(text))
        assert used, text
        assert used <= known, f"{text}: nothing exports {sorted(used - known)}"


@EACH
def test_panels_have_titles_queries_and_no_two_one_place(name: str) -> None:
    board: dict[str, Any] = BOARDS[name]
    assert board["uid"].startswith("sunfleet-")
    assert board["schemaVersion"] >= 36
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(places) == len(set(places))
    assert len({panel["id"] for panel in board["panels"]}) == len(places)
    for panel in board["panels"]:
        assert panel["title"]
        assert panel["targets"]
        assert all(target["legendFormat"] for target in panel["targets"])
        assert panel["datasource"]["uid"] == "${datasource}"


def test_every_dashboard_is_in_the_component() -> None:
    (generator,) = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["configMapGenerator"]
    assert {file.removesuffix(".json") for file in generator["files"]} == set(BOARDS)


def test_a_mistyped_metric_would_be_found() -> None:
    assert "sunfleet_router_requests_total" in exported()
    assert "sunfleet_router_time_to_first_token_seconds_bucket" in exported()
    assert not {"sunfleet_router_requests", "vllm_num_requests_running"} & exported()


def test_what_is_scraped_are_the_ports_that_pods_have() -> None:
    monitors = list(yaml.safe_load_all((ROOT / "manifests/components/monitors/podmonitors.yaml").read_text()))
    assert {port["port"] for monitor in monitors for port in monitor["spec"]["podMetricsEndpoints"]} == {"metrics"}
    for room in ("router", "operator"):
        deployment = yaml.safe_load((ROOT / f"manifests/base/{room}/deployment.yaml").read_text())
        template = deployment["spec"]["template"]
        ports = {port["name"] for container in template["spec"]["containers"] for port in container["ports"]}
        assert "metrics" in ports
        assert template["metadata"]["labels"]["app.kubernetes.io/part-of"] == "sunfleet"
