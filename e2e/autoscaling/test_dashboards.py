"""Every panel of the shipped dashboards and every query of the scaler has an answer in a real Prometheus."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.kubectl import wait_until
from support.podlog import PodLog
from support.prometheus import SCRAPE_INTERVAL, Prometheus
from support.scaled import BUSY, ScaledFleet
from support.streams import ask, completion

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests/components"
BOARDS = sorted((MANIFESTS / "dashboards").glob("*.json"))
SCRAPED_SECONDS = 30
QUIET_SECONDS = 60  # in which an alert with a `for` must have had nothing to say, once: it needs minutes on end
# Only a fault, or an engine that is no fake, makes these series.
MAY_BE_EMPTY = re.compile(r"sunfleet_decode_computed_prompt_tokens|sunfleet_worker_|leg_failures|resume|code!=")


def panels() -> Iterator[tuple[str, str]]:
    """Dashboard and title, and the query."""
    for board in BOARDS:
        for panel in json.loads(board.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{board.stem}: {panel['title']}", target["expr"]


def filled(query: str) -> str:
    """As Grafana asks when every task and decoder is chosen."""
    return re.sub(r"\$(task|decoder)\b", ".+", query.replace("$__rate_interval", "1m"))


def scraped_twice(fleet: ScaledFleet, pods: PodLog, prometheus: Prometheus) -> bool:
    """All of the system's pods and all engines that are Ready, without which no rate has a value."""
    return fleet.measured(pods) <= prometheus.pods(f"up == 1 and up offset {SCRAPE_INTERVAL} == 1")


@pytest.fixture(scope="module")
def used(fleet: ScaledFleet, pods: PodLog, prometheus: Prometheus, router_url: str) -> ScaledFleet:
    """A fleet that has answered, and has been scraped since."""
    reply = ask(router_url, completion(fleet.model(BUSY), "a question for the dashboards", max_tokens=5))
    assert reply.done, reply.error or reply.broken
    counted = f'sum(increase(sunfleet_router_requests_total{{task="{fleet.namespace}/{BUSY}"}}[1m])) > 0'
    prometheus.wait_for("the answer is counted", counted)
    wait_until("every pod is scraped", lambda: scraped_twice(fleet, pods, prometheus), SCRAPED_SECONDS)
    return fleet


@pytest.mark.parametrize(("title", "query"), list(panels()))
def test_every_panel_has_an_answer(used: ScaledFleet, prometheus: Prometheus, title: str, query: str) -> None:
    del used
    found = prometheus.query(filled(query))
    assert found or MAY_BE_EMPTY.search(query), f"{title}: nothing answers {filled(query)}"


def test_the_counts_that_the_scaler_wants_are_told_for_the_objects_own_namespace(
    used: ScaledFleet, prometheus: Prometheus
) -> None:
    """Prometheus would call it ``exported_namespace`` where the monitor does not honour the operator's labels."""
    found = prometheus.query(f'sunfleet_operator_scaling_desired_replicas{{namespace="{used.namespace}"}}')
    assert {(one["metric"]["kind"], one["metric"]["name"]) for one in found} >= {("SunModel", BUSY)}


def test_every_rule_can_be_evaluated_and_no_alert_fires(prometheus: Prometheus) -> None:
    rules = yaml.safe_load((MANIFESTS / "alerts/rules.yaml").read_text())
    for group in rules["spec"]["groups"]:
        for rule in group["rules"]:
            found = prometheus.query(rule["expr"])
            if found and "for" in rule:
                what = f"{rule['alert']} has nothing to say of a fleet that is well"
                wait_until(what, lambda rule=rule: not prometheus.query(rule["expr"]), QUIET_SECONDS)
            else:
                assert not found or "record" in rule, f"{rule['alert']} fires on a fleet that is well"


def test_what_is_scraped_is_every_router_operator_and_engine(
    used: ScaledFleet, pods: PodLog, prometheus: Prometheus
) -> None:
    """Also those that have come since the fleet was used."""
    wait_until("every pod is scraped", lambda: scraped_twice(used, pods, prometheus), SCRAPED_SECONDS)
