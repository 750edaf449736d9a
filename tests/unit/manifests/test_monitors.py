"""Which pods are scraped by the shipped PodMonitors, and by the sample for a Prometheus without them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sunfleet_api import names
from sunfleet_api.refs import LabelSelector

MANIFESTS = Path(__file__).resolve().parents[3] / "manifests"
MONITORS = MANIFESTS / "components/monitors/podmonitors.yaml"
SAMPLE = MANIFESTS / "samples/prometheus/scrape.yaml"
PART = {names.LABEL_PART_OF: "sunfleet"}


ONCE = pytest.mark.parametrize(
    ("labels", "job"),
    [
        ({**PART, names.LABEL_COMPONENT: "router"}, "sunfleet"),
        ({**PART, names.LABEL_COMPONENT: "operator"}, "sunfleet"),
        ({**PART, names.LABEL_COMPONENT: "prefill", names.LABEL_ROLE: "prefill"}, "sunfleet-engines"),
        ({**PART, names.LABEL_COMPONENT: "decode", names.LABEL_ROLE: "decode"}, "sunfleet-engines"),
    ],
)


@ONCE
def test_every_pod_is_scraped_once(labels: dict[str, str], job: str) -> None:
    """Also an engine in the namespace of the routers: twice scraped, its sums would double."""
    monitors = list(yaml.safe_load_all(MONITORS.read_text()))
    assert [
        one["metadata"]["name"]
        for one in monitors
        if LabelSelector.model_validate(one["spec"]["selector"]).matches(labels)
    ] == [job]


@ONCE
def test_the_sample_scrapes_it_once_too(labels: dict[str, str], job: str) -> None:
    seen = {f"__meta_kubernetes_pod_label_{re.sub('[^a-z]', '_', name)}": value for name, value in labels.items()}
    seen["__meta_kubernetes_pod_container_port_name"] = "metrics"

    def kept(rule: dict[str, Any]) -> bool:
        text = ";".join(seen.get(label, "") for label in rule["source_labels"])
        return rule.get("action") != "keep" or re.fullmatch(str(rule["regex"]), text) is not None

    jobs = yaml.safe_load(SAMPLE.read_text())["scrape_configs"]
    assert [one["job_name"] for one in jobs if all(map(kept, one["relabel_configs"]))] == [job]
