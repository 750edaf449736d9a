"""The plain scrape configuration among the samples finds the pods that the PodMonitors find."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.kubectl import Json, wait_until
from support.podlog import PodLog
from support.prometheus import SCRAPE_INTERVAL, Prometheus, from_monitors
from support.scaled import BUSY, ScaledFleet

pytestmark = pytest.mark.long
SAMPLE = Path(__file__).resolve().parents[2] / "manifests/samples/prometheus/scrape.yaml"
SEEN_SECONDS = 30


def plain() -> Json:
    """The sample, as often as the tests scrape."""
    jobs = yaml.safe_load(SAMPLE.read_text())["scrape_configs"]
    for job in jobs:
        del job["scrape_interval"]
    return {"global": {"scrape_interval": SCRAPE_INTERVAL, "scrape_timeout": SCRAPE_INTERVAL}, "scrape_configs": jobs}


def scraped(prometheus: Prometheus) -> set[tuple[str, str]]:
    """Namespace and name of every pod that answers."""
    return {(one["metric"]["namespace"], one["metric"]["pod"]) for one in prometheus.query("up == 1")}


@pytest.fixture
def plainly(prometheus: Prometheus) -> Iterator[Prometheus]:
    """Scrapes by the sample, and by the monitors again afterwards."""
    prometheus.configure(plain())
    yield prometheus
    prometheus.configure(from_monitors())


def test_the_plain_configuration_finds_what_the_monitors_find(
    fleet: ScaledFleet, pods: PodLog, plainly: Prometheus
) -> None:
    def wanted() -> set[tuple[str, str]]:
        system = fleet.kubectl.items("pods", "--namespace", "sunfleet-system")
        engines = {(fleet.namespace, pod.name) for pod in pods.now.pods.values() if pod.ready and not pod.going}
        return engines | {("sunfleet-system", pod["metadata"]["name"]) for pod in system}

    wait_until("every pod is scraped", lambda: wanted() <= scraped(plainly), SEEN_SECONDS)
    assert {one["metric"]["job"] for one in plainly.query("up")} == {"sunfleet", "sunfleet-engines"}
    fleet.wait_for(
        "decides from metrics", "sunmodel", BUSY, lambda _: fleet.scaling("sunmodel", BUSY) == "DecidedFromMetrics"
    )
