"""The sample ScaledObject: KEDA scales a task from the router's metric, to zero and back too."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from sunfleet_api.names import ROLE_PREFILL
from sunfleet_cluster.choose import open_cluster
from sunfleet_cluster.programs import KEDA
from support import keda, programs, scaled
from support.external import SAMPLES, ExternalFleet, external_fleet, sample
from support.kubectl import Kubectl, wait_until
from support.load import steady
from support.prometheus import Prometheus
from support.scaled import BUSY
from support.streams import ask, completion

pytestmark = [pytest.mark.long, pytest.mark.timeout(5400)]  # KEDA is compiled the first time
UP_SECONDS = 120


@pytest.fixture(scope="module")
def definitions(kubectl: Kubectl) -> Iterator[None]:
    """KEDA's kinds."""
    with keda.defined(kubectl):
        yield


@pytest.fixture(scope="module")
def served(
    kubectl: Kubectl, definitions: None, prometheus: Prometheus, make_namespace: Callable[[str], str], fake_image: str
) -> Iterator[ExternalFleet]:
    """A fleet whose one task a ScaledObject scales."""
    del definitions  # are there first
    cluster = open_cluster()
    images = {program.name: programs.image(cluster, program) for program in KEDA}
    fleet = external_fleet(kubectl, make_namespace("keda"), fake_image, least=0)
    with keda.running_keda(kubectl, images):
        made = keda.scaled_object(sample("keda.yaml"), prometheus.url, fleet.model_name)
        kubectl.apply([made], fleet.namespace)
        yield fleet
        kubectl.delete("scaledobject", made["metadata"]["name"], "--namespace", fleet.namespace)


def no_pods(fleet: ExternalFleet) -> bool:
    return not fleet.pods(ROLE_PREFILL)


def test_the_sample_is_what_keda_takes(kubectl: Kubectl, definitions: None) -> None:
    """By the rules of its own definition, unknown fields included."""
    del definitions
    check = ("--dry-run=server", "--validate=strict", "--namespace", "default", "--filename")
    assert "maths" in kubectl.run("create", *check, str(SAMPLES / "keda.yaml"))


def test_an_idle_task_goes_to_zero(served: ExternalFleet) -> None:
    wait_until("the task has no pods", lambda: no_pods(served), UP_SECONDS)
    assert served.get("sunmodel", BUSY)["spec"]["replicas"] == 0


def test_a_held_request_brings_the_task_back(
    served: ExternalFleet, router_url: str, record: Callable[[str, float], None]
) -> None:
    wait_until("the task has no pods", lambda: no_pods(served), UP_SECONDS)
    started = time.monotonic()
    reply = ask(router_url, completion(served.model_name, "is anybody there", **scaled.REQUEST), timeout=UP_SECONDS)
    assert reply.done, reply.error or reply.broken
    record("seconds until the answer after zero with KEDA", time.monotonic() - started)


def test_load_raises_the_task_and_its_end_lowers_it(
    served: ExternalFleet, router_url: str, record: Callable[[str, float], None]
) -> None:
    with steady(router_url, served.model_name, clients=scaled.CLIENTS, **scaled.REQUEST) as load:
        started = time.monotonic()
        wait_until("the task has its pods", lambda: len(served.ready(ROLE_PREFILL)) == scaled.MOST, UP_SECONDS)
        record("seconds until KEDA had given the task its pods", time.monotonic() - started)
    assert not [one.reply.error or one.reply.broken for one in load.asked if not one.reply.done]
    wait_until("the task has no pods again", lambda: no_pods(served), UP_SECONDS)
