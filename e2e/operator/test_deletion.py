"""Deleting a namespace with a live fleet: quick, and nothing stays."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from sunfleet_api.names import ROLE_DECODE, ROLE_PREFILL
from support.fleets import Fleet
from support.kubectl import Kubectl, wait_until

pytestmark = pytest.mark.timeout(240)
LIMIT_SECONDS = 60.0
DRAIN_SECONDS = 300  # the default of the API
ROLES = (ROLE_DECODE, ROLE_PREFILL)


def test_a_namespace_with_a_live_fleet_is_gone_within_a_minute(
    kubectl: Kubectl, make_fleet: Callable[[str], Fleet]
) -> None:
    fleet = make_fleet("gone")
    kubectl.apply(fleet.manifests, fleet.namespace)
    fleet.wait_ready()
    graces = [pod["spec"]["terminationGracePeriodSeconds"] for role in ROLES for pod in fleet.pods(role)]
    assert len(graces) == len(fleet.manifests)
    assert min(graces) > DRAIN_SECONDS  # what Kubernetes would wait for half of
    volumes = {item["metadata"]["name"] for item in kubectl.items("persistentvolumes")}
    started = time.monotonic()
    kubectl.run("delete", "namespace", fleet.namespace, "--wait=false")
    wait_until("the namespace is gone", lambda: kubectl.find("namespace", fleet.namespace) is None, LIMIT_SECONDS)
    print(f"namespace with a live fleet gone after {time.monotonic() - started:.0f} s")
    assert {item["metadata"]["name"] for item in kubectl.items("persistentvolumes")} == volumes


def test_a_namespace_whose_fleet_never_came_up_is_gone_too(
    kubectl: Kubectl, make_fleet: Callable[[str], Fleet]
) -> None:
    fleet = make_fleet("half")
    kubectl.apply(fleet.manifests, fleet.namespace)
    kubectl.run("delete", "namespace", fleet.namespace, "--wait=false")
    wait_until("the namespace is gone", lambda: kubectl.find("namespace", fleet.namespace) is None, LIMIT_SECONDS)
