"""Deleting a namespace with a live fleet: quick, and nothing stays."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from support.fleets import Fleet
from support.kubectl import Kubectl, wait_until

pytestmark = pytest.mark.timeout(240)
LIMIT_SECONDS = 60.0


def test_a_namespace_with_a_live_fleet_is_gone_within_a_minute(
    kubectl: Kubectl, make_fleet: Callable[[str], Fleet]
) -> None:
    fleet = make_fleet("gone")
    kubectl.apply(fleet.manifests, fleet.namespace)
    fleet.wait_ready()
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
