"""Which pods the shipped PodMonitors scrape."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sunfleet_api import names
from sunfleet_api.refs import LabelSelector

FILE = Path(__file__).resolve().parents[3] / "manifests/components/monitors/podmonitors.yaml"
PART = {names.LABEL_PART_OF: "sunfleet"}


@pytest.mark.parametrize(
    ("labels", "monitor"),
    [
        ({**PART, names.LABEL_COMPONENT: "router"}, "sunfleet"),
        ({**PART, names.LABEL_COMPONENT: "operator"}, "sunfleet"),
        ({**PART, names.LABEL_COMPONENT: "prefill", names.LABEL_ROLE: "prefill"}, "sunfleet-engines"),
        ({**PART, names.LABEL_COMPONENT: "decode", names.LABEL_ROLE: "decode"}, "sunfleet-engines"),
    ],
)
def test_every_pod_is_scraped_once(labels: dict[str, str], monitor: str) -> None:
    """Also an engine in the namespace of the routers: twice scraped, its sums would double."""
    monitors = list(yaml.safe_load_all(FILE.read_text()))
    assert [
        one["metadata"]["name"]
        for one in monitors
        if LabelSelector.model_validate(one["spec"]["selector"]).matches(labels)
    ] == [monitor]
