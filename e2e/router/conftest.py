"""What the router's suites share: two tasks, each with a prefill pod, and two decode pods."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import fakes
from support.fakes import ApiProxy, create_namespace, secret
from support.fleet import wait_ready
from support.kubectl import Kubectl
from support.served import ServedFleet, router_address


@pytest.fixture(scope="session")
def router_url(kubectl: Kubectl) -> Iterator[str]:
    with router_address(kubectl) as url:
        yield url


@pytest.fixture(scope="session")
def running(
    kubectl: Kubectl, proxy: ApiProxy, hub_namespace: str, fake_image: str, router_url: str
) -> Iterator[ServedFleet]:
    """The fleet, Ready; one for all modules."""
    namespace = create_namespace(kubectl, "router")
    kubectl.apply([secret("hub", hub_namespace)], namespace)
    models = {"maths": "hf://acme/maths", "code": "hf://acme/code-lora"}
    tasks = [fakes.sun_model(task, uri, model_name=f"{namespace}/{task}") for task, uri in models.items()]
    kubectl.apply([fakes.decoder(fake_image, replicas=2), *tasks], namespace)
    wait_ready(kubectl, namespace, 120)
    fleet = ServedFleet(kubectl, proxy, namespace, router_url)
    fleet.learn_identities()
    yield fleet
    kubectl.run("delete", "namespace", namespace, "--wait=false", "--ignore-not-found")


@pytest.fixture
def fleet(running: ServedFleet) -> ServedFleet:
    """The same fleet for each test, without what the one before did to it."""
    running.reset()
    return running
