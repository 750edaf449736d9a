"""The sample HorizontalPodAutoscaler scales a task through /scale of its SunModel, from the router's metric."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from sunfleet_api.names import ROLE_PREFILL
from sunfleet_cluster import programs as catalog
from sunfleet_cluster.choose import open_cluster
from support import adapter, fakes, programs, scaled
from support.external import ExternalFleet, external_fleet, sample
from support.kubectl import Json, Kubectl, KubectlError, wait_until
from support.load import steady
from support.prometheus import Prometheus
from support.scaled import BUSY, ScaledFleet

pytestmark = pytest.mark.long
UP_SECONDS = 120  # two of the controller's rounds, which nobody can shorten, and a pod's start
TOKENS = "5"  # of the backlog that a pod may have: eight clients keep more than that in each of three


@pytest.fixture(scope="module")
def served(
    kubectl: Kubectl, prometheus: Prometheus, make_namespace: Callable[[str], str], fake_image: str
) -> Iterator[ExternalFleet]:
    """A fleet whose one task is scaled from outside, while an adapter serves the metrics of Prometheus."""
    fleet = external_fleet(kubectl, make_namespace("hpa"), fake_image, least=1)
    image = programs.image(open_cluster(), catalog.PROMETHEUS_ADAPTER)
    with adapter.running_adapter(kubectl, fleet.namespace, image, prometheus.url):
        yield fleet


def hpa(fleet: ExternalFleet) -> Json:
    """The sample for our model's name and a small engine, and quick to scale in."""
    made = sample("hpa.yaml")
    spec = made["spec"]
    spec["maxReplicas"] = scaled.MOST
    spec["behavior"] = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    external = spec["metrics"][0]["external"]
    external["metric"]["selector"]["matchLabels"]["task"] = fleet.model_name
    external["target"]["averageValue"] = TOKENS
    return made


def metric(fleet: ExternalFleet) -> str | None:
    """The value as the API server answers for it; None while there is none."""
    path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{fleet.namespace}/sunfleet_router_prefill_backlog_tokens"
    with suppress(KubectlError):
        found = json.loads(fleet.kubectl.run("get", "--raw", f"{path}?labelSelector=task%3D{fleet.model_name}"))
        return str(found["items"][0]["value"]) if found["items"] else None
    return None


def test_the_routers_metric_is_served_through_the_aggregation_layer(served: ExternalFleet) -> None:
    assert wait_until("the metric of an idle task is there", lambda: metric(served), 60) == "0"


def test_the_sample_scales_out_under_load_and_in_without(
    served: ExternalFleet, router_url: str, record: Callable[[str, float], None]
) -> None:
    served.kubectl.apply([hpa(served)], served.namespace)
    with steady(router_url, served.model_name, clients=scaled.CLIENTS, **scaled.REQUEST) as load:
        started = time.monotonic()
        wait_until("the task has its pods", lambda: len(served.ready(ROLE_PREFILL)) == scaled.MOST, UP_SECONDS)
        record("seconds until an HPA had given the task its pods", time.monotonic() - started)
        told = served.get("sunmodel", BUSY)
        assert told["spec"]["replicas"] == scaled.MOST
        assert told["status"]["scaling"]["mode"] == "External"
        assert fakes.condition(told, "ScalingReady")["reason"] == "External"
    assert not [one.reply.error or one.reply.broken for one in load.asked if not one.reply.done]
    wait_until("the task has one pod again", lambda: len(served.pods(ROLE_PREFILL)) == 1, UP_SECONDS)


def test_a_second_scaler_is_told_and_not_followed(fleet: ScaledFleet) -> None:
    """An HPA on a task that the operator scales itself."""
    wait_until("the task is idle", lambda: fleet.count("sunmodel", scaled.OTHER) == 1, UP_SECONDS)
    rival = sample("hpa.yaml")
    rival["metadata"]["name"], rival["spec"]["scaleTargetRef"]["name"] = "rival", scaled.OTHER
    rival["spec"] |= {"minReplicas": 2, "metrics": [resource_metric()]}
    fleet.kubectl.apply([rival], fleet.namespace)
    try:
        seen = fleet.wait_for(
            "says who else scales it", "sunmodel", scaled.OTHER,
            lambda thing: fakes.condition(thing, "ScalingReady").get("reason") == "SecondScaler",
        )  # fmt: skip
        assert "rival" in fakes.condition(seen, "ScalingReady")["message"]
        wait_until("it has written", lambda: fleet.get("sunmodel", scaled.OTHER)["spec"].get("replicas") == 2, 60)
        assert fleet.count("sunmodel", scaled.OTHER) == 1
    finally:
        fleet.kubectl.delete("hpa/rival", "--namespace", fleet.namespace)


def resource_metric() -> Json:
    """One that needs no adapter: minReplicas alone makes the HPA write."""
    target = {"type": "Utilization", "averageUtilization": 80}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}
