"""A namespace is deleted on a real API server: our pods are told to end at once. No kubelet is there to end them."""

from __future__ import annotations

from typing import Any

import pytest

from sunfleet_api import names
from sunfleet_optest.live import Fleet, Process

from .conftest import wait_leading

pytestmark = pytest.mark.timeout(300)
GRACE_SECONDS = 335  # that of an engine with the default drain
OURS = {names.LABEL_MANAGED_BY: names.MANAGED_BY}


@pytest.fixture
def pods(fleet: Fleet) -> str:
    """The path of the namespace's pods: two of ours, of which ``drains`` is being deleted already, and a stranger.

    They stand on a node, since the API server deletes a pod without one at once, whatever its grace period.
    """
    path = f"/api/v1/namespaces/{fleet.namespace}/pods"
    for name, labels in (("serves", OURS), ("drains", OURS), ("stranger", {})):
        spec = {
            "nodeName": "nowhere",
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "containers": [{"name": "engine", "image": "engine"}],
        }
        fleet.api.create(path, {"metadata": {"name": name, "labels": labels}, "spec": spec})
    fleet.api.delete(f"{path}/drains")
    return path


def _graces(fleet: Fleet, path: str) -> dict[str, Any]:
    """How long each pod has for its end; ``None`` for one that is not being deleted."""
    return {
        pod["metadata"]["name"]: pod["metadata"].get("deletionGracePeriodSeconds")
        for pod in fleet.api.get(path)["items"]
    }


def _delete_namespace(fleet: Fleet) -> None:
    fleet.api.delete(f"/api/v1/namespaces/{fleet.namespace}")


def _until_ours_end(fleet: Fleet, path: str) -> None:
    ended = {"serves": 1, "drains": 1, "stranger": None}
    fleet.until(lambda: _graces(fleet, path) == ended, "our pods are told to end")


def test_pods_of_a_namespace_that_is_deleted_end_at_once_even_those_that_drain(fleet: Fleet, pods: str) -> None:
    assert _graces(fleet, pods) == {"serves": None, "drains": GRACE_SECONDS, "stranger": None}
    _delete_namespace(fleet)
    _until_ours_end(fleet, pods)


def test_a_namespace_that_was_deleted_while_no_operator_ran_is_found(
    fleet: Fleet, pods: str, operator: Process
) -> None:
    assert operator.stop() == 0
    _delete_namespace(fleet)
    operator.start()
    wait_leading(operator)
    _until_ours_end(fleet, pods)
