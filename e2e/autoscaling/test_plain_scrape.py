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


@pytest.fixture
def plainly(prometheus: Prometheus) -> Iterator[Prometheus]:
    """Scrapes by the sample, and by the monitors again afterwards."""
    prometheus.configure(plain())
    yield prometheus
    prometheus.configure(from_monitors())


def test_the_plain_configuration_finds_what_the_monitors_find(
    fleet: ScaledFleet, pods: PodLog, plainly: Prometheus
) -> None:
    wait_until("every pod is scraped", lambda: fleet.measured(pods) <= plainly.pods("up == 1"), SEEN_SECONDS)
    assert {one["metric"]["job"] for one in plainly.query("up")} == {"sunfleet", "sunfleet-engines"}
    fleet.wait_for(
        "decides from metrics", "sunmodel", BUSY, lambda _: fleet.scaling("sunmodel", BUSY) == "DecidedFromMetrics"
    )
