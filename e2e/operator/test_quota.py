"""A namespace without room: the objects say so, and go on as soon as there is some."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.fakes import condition
from support.fleets import Fleet
from support.kubectl import Kubectl

pytestmark = pytest.mark.timeout(240)


def test_a_quota_is_told_in_its_own_words_and_making_room_is_enough(
    make_fleet: Callable[[str], Fleet], kubectl: Kubectl
) -> None:
    fleet = make_fleet("quota")
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    kubectl.apply([quota, fleet.decoder], fleet.namespace)
    found = fleet.wait_for(
        "says that its resolver gets no pod", "shareddecoder", "base",
        lambda thing: condition(thing, "WeightsReady").get("reason") == "FailedCreate",
    )  # fmt: skip
    assert "exceeded quota: none" in condition(found, "WeightsReady")["message"]
    assert condition(found, "Ready")["reason"] == "FailedCreate"

    kubectl.apply(
        [{**quota, "spec": {"hard": {"pods": "1"}}}], fleet.namespace
    )  # the resolver's, and then the engine's
    fleet.wait_ready()

    kubectl.run("patch", "shareddecoder/base", "--namespace", fleet.namespace, "--type=merge", "--patch",
                '{"spec": {"replicas": 2}}')  # fmt: skip
    found = fleet.wait_for(
        "says that the second pod is refused", "shareddecoder", "base",
        lambda thing: condition(thing, "Ready").get("reason") == "FailedCreate",
    )  # fmt: skip
    assert "exceeded quota: none" in condition(found, "Ready")["message"]
    kubectl.delete("resourcequota", "none", "--namespace", fleet.namespace)
    fleet.wait_ready()
